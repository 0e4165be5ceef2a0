package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/redislock"
)

// harness is that of a standalone server, which the suite may stop and restart.
// The server must keep its data over a restart.
func harness(t *testing.T, s *provision.Server, admin *goredis.Client) conformance.Harness {
	base := s.URL()
	grants := &grantCounter{t: t, addr: s.Addr()}
	return conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, suite.WithParams(base, map[string]string{"prefix": prefix}))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			// short timeouts, so that a request into a black hole frees its connection soon
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
		ServerCommands:    func(ctx context.Context) (int64, error) { return commands(ctx, admin) },
		Wakes:             func(ctx context.Context) (int64, error) { return grants.count(ctx, admin) },
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
			return guardedWrite(ctx, admin, name, token)
		},
	}
}

// commands counts the scripts that clients had executed, and the plain commands
// that could stand in their place.
func commands(ctx context.Context, admin *goredis.Client) (int64, error) {
	stats, err := admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	var n int64
	for line := range strings.Lines(stats) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "evalsha", "eval", "fcall", "subscribe", "ssubscribe":
			calls, _, _ := strings.Cut(strings.TrimPrefix(fields, "calls="), ",")
			c, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("commandstats: %q", line)
			}
			n += c
		}
	}
	return n, nil
}

// grantCounter counts the grants that scripts push to waiters, by listening to
// MONITOR from its first use on.
type grantCounter struct {
	t    *testing.T
	addr string

	once  sync.Once
	err   error
	lines *bufio.Scanner
	n     int64
}

func (g *grantCounter) start() error {
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		return err
	}
	g.t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte("MONITOR\r\n")); err != nil {
		return err
	}
	g.lines = bufio.NewScanner(c)
	if !g.lines.Scan() || g.lines.Text() != "+OK" {
		return fmt.Errorf("MONITOR: %q, %w", g.lines.Text(), g.lines.Err())
	}
	return nil
}

func (g *grantCounter) count(ctx context.Context, admin *goredis.Client) (int64, error) {
	g.once.Do(func() { g.err = g.start() })
	if g.err != nil {
		return 0, g.err
	}
	// The monitor's stream is in order: what was before the marker has been counted.
	marker := fmt.Sprintf("marker-%d", time.Now().UnixNano())
	if err := admin.Echo(ctx, marker).Err(); err != nil {
		return 0, err
	}
	for g.lines.Scan() {
		line := g.lines.Text()
		if strings.Contains(line, marker) {
			return g.n, nil
		}
		if strings.Contains(line, `PUBLISH" "`) && strings.Contains(line, `" "g `) {
			g.n++
		}
	}
	return 0, fmt.Errorf("MONITOR: the stream ended: %w", g.lines.Err())
}

// leftovers are all keys of a name but its fence counter, and the tombstones of
// attempts that were abandoned, which expire by themselves.
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

// fenced writes only with a token that is not lower than the highest it has seen.
var fenced = goredis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < seen then return redis.error_reply('stale fencing token') end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[1])
return 1`)

func guardedWrite(ctx context.Context, admin *goredis.Client, name string, token uint64) error {
	return fenced.Run(ctx, admin, []string{"guarded:" + name}, strconv.FormatUint(token, 10)).Err()
}
