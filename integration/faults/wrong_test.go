package faults_test

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/faults"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// TestRunnerFinds runs two locks with common flaws on a real server, and expects violations.
// That takes less than a minute on an idle machine, so it runs before the other tests, as
// TestChecksFind does.
func TestRunnerFinds(t *testing.T) {
	provision.LeaveOut(t, "broken locks under faults")
	const ttl = time.Second
	// Slow links: the trust is too long by the time of a reply.
	slow := faults.Slow(ttl/20, ttl*2/5)
	slow.Least = 2 * ttl
	// Late requests, which free the lock of another holder.
	late := faults.Stalled()
	late.Least = ttl
	for _, tt := range []struct {
		name  string
		fault faults.Fault
		open  func(context.Context, string) (backend.Backend, error)
	}{
		{"SET NX without owner check", late, openSetNX},
		{"TTL from the reply", slow, openFromReply},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redisService(t)
			s.Name, s.TTL, s.Open = tt.name, ttl, tt.open
			s.Share = 1
			begun := time.Now()
			for seed := uint64(1); time.Since(begun) < 5*time.Minute; seed++ {
				res := s.Run(t, tt.fault, seed, 6*time.Second)
				t.Log(res)
				if res.Broken(faults.Exclusion) > 0 && res.Broken(faults.Model) > 0 {
					t.Logf("found after %v: %.600s", time.Since(begun), res.Violations[0])
					return
				}
			}
			t.Error("want a violation of exclusion to be found within five minutes")
		})
	}
}

// setNX is the lock of many tutorials: it polls, and a release deletes the key even if
// another client holds it.
type setNX struct{ c *goredis.Client }

func openSetNX(_ context.Context, url string) (backend.Backend, error) {
	addr, _, _ := strings.Cut(strings.TrimPrefix(url, "redis://"), "/")
	return setNX{goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})}, nil
}

func (b setNX) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name: "setnx", Scope: backend.ScopeNetwork, Loss: backend.LossTTL, Order: backend.Unordered, Wake: backend.WakePoll,
		Fencing: backend.FencingMemory, MinTTL: time.Millisecond,
	}
}

func (b setNX) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	sent := time.Now()
	switch ok, err := b.c.SetNX(ctx, req.Key, req.Owner, req.TTL).Result(); {
	case err != nil:
		return nil, backend.Uncertain(err)
	case !ok:
		return nil, backend.ErrLocked
	}
	token, err := b.c.Incr(ctx, req.Key+":fence").Result()
	if err != nil {
		return nil, backend.Uncertain(err)
	}
	return &setNXGrant{b, req.Key, uint64(token), sent.Add(req.TTL)}, nil
}

func (b setNX) Abandon(ctx context.Context, req backend.Request) error {
	return b.c.Del(ctx, req.Key).Err()
}

func (b setNX) Close(context.Context) error { return b.c.Close() }

type setNXGrant struct {
	b     setNX
	key   string
	token uint64
	until time.Time
}

func (g *setNXGrant) Token() uint64    { return g.token }
func (g *setNXGrant) Until() time.Time { return g.until }

func (g *setNXGrant) Renew(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	switch ok, err := g.b.c.PExpire(ctx, g.key, ttl).Result(); {
	case err != nil:
		return err
	case !ok:
		return backend.ErrLost
	}
	g.until = sent.Add(ttl)
	return nil
}

func (g *setNXGrant) Release(ctx context.Context) error {
	if err := g.b.c.Del(ctx, g.key).Err(); err != nil {
		return backend.Uncertain(err)
	}
	return nil
}

// fromReply is the Redis driver with a trust that begins at the receipt of the reply.
type fromReply struct {
	backend.Backend
	backend.Waiter
}

func openFromReply(ctx context.Context, url string) (backend.Backend, error) {
	b, err := suite.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return fromReply{b, b.(backend.Waiter)}, nil
}

func (b fromReply) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return late(b.Backend.TryAcquire(ctx, req))(req.TTL)
}

func (b fromReply) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return late(b.Waiter.Acquire(ctx, req))(req.TTL)
}

type lateGrant struct {
	backend.Grant
	until time.Time
}

func late(g backend.Grant, err error) func(time.Duration) (backend.Grant, error) {
	return func(ttl time.Duration) (backend.Grant, error) {
		if err != nil {
			return nil, err
		}
		return &lateGrant{g, time.Now().Add(ttl)}, nil
	}
}

func (g *lateGrant) Until() time.Time { return g.until }

func (g *lateGrant) Renew(ctx context.Context, ttl time.Duration) error {
	err := g.Grant.Renew(ctx, ttl)
	if err == nil {
		g.until = time.Now().Add(ttl)
	}
	return err
}
