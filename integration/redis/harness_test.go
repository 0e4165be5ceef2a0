package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/redistest"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/redislock"
)

// budget is that of every topology.
var budget = conformance.Budget{WakesPerRelease: 1, HandOffCommands: 2, IdleHolderCommands: 4, IdleWaiterCommands: 1, DeadProcess: backend.MaxProvisionalTTL}

// harness returns the harness of a standalone server, which the suite may stop and restart.
// The server must keep its data over a restart.
func harness(t *testing.T, s *provision.Server, admin *goredis.Client) conformance.Harness {
	base := s.URL()
	grants := &redistest.GrantCounter{T: t, Addr: s.Addr()}
	return conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, suite.WithParams(base, map[string]string{"prefix": prefix}))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			// short timeouts, so that a request without a reply frees its connection soon
			b, err := suite.Open(ctx, suite.WithParams("redis://"+p.Addr()+"/0", map[string]string{"dial_timeout": "1s", "read_timeout": "1s", "wait_timeout": "500ms"}))
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		ClockWorker:       provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:     suite.OwnGoroutines,
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		ServerCommands:    func(ctx context.Context) (int64, error) { return redistest.Commands(ctx, admin) },
		Budget:            budget,
		Wakes:             func(ctx context.Context) (int64, error) { return grants.Count(ctx, admin) },
		Leftovers:         func(ctx context.Context, name string) ([]string, error) { return leftovers(ctx, admin, name) },
		ForeignHolder: func(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
			key := redislock.Key(redislock.DefaultPrefix, name)
			ok, err := admin.SetNX(ctx, key, "another client", ttl).Result()
			if err != nil || !ok {
				return nil, fmt.Errorf("SET NX of %q: %v, %w", key, ok, err)
			}
			return func(ctx context.Context) error { return admin.Del(ctx, key).Err() }, nil
		},
		DestroyState: func(ctx context.Context, name string) error {
			return admin.Del(ctx, redislock.Key(redislock.DefaultPrefix, name)).Err()
		},
		KeepsFence: true,
		KeyOf:      func(name string) string { return redislock.Key(redislock.DefaultPrefix, name) },
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return redistest.GuardedWrite(ctx, admin, name, token)
		},
	}
}

// leftovers returns the keys of a name except its fence counter and the tombstones of
// abandoned attempts, which expire by themselves.
func leftovers(ctx context.Context, admin *goredis.Client, name string) ([]string, error) {
	key := redislock.Key(redislock.DefaultPrefix, name)
	all, err := admin.Keys(ctx, "*").Result()
	if err != nil {
		return nil, err
	}
	var left []string
	for _, k := range all {
		if k == key || k == "{"+key+"}:q" {
			left = append(left, k)
		}
	}
	return left, nil
}
