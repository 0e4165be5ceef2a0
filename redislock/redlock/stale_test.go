package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// slowly opens a backend behind proxies, with clients that have long read timeouts.
func slowly(t *testing.T, cs []redis.UniversalClient, opts ...Option) (*Backend, []*proxy) {
	t.Helper()
	var ps []*proxy
	var through []redis.UniversalClient
	for _, c := range cs {
		p := newProxy(t, c.(*redis.Client).Options().Addr)
		ps = append(ps, p)
		client := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1, ReadTimeout: 30 * time.Second})
		t.Cleanup(func() { _ = client.Close() })
		through = append(through, client)
	}
	return newRedlock(t, through, opts...), ps
}

// A waiter that asks when the holder's lease ends, and gets no answers of a quorum, must not
// count older refusals: it neither asks the other node without a pause nor misses the end
// of its context.
func TestRedlockRefusalsOfTheRoundBefore(t *testing.T) {
	for _, hang := range []int{3, 2} {
		t.Run(fmt.Sprintf("%d of 3 hang", hang), func(t *testing.T) {
			t.Parallel()
			staleRefusals(t, hang)
		})
	}
}

func staleRefusals(t *testing.T, hang int) {
	cs := masters(t, 3)
	holder := newRedlock(t, cs)
	r, ps := slowly(t, cs)
	held, waits := redlockRequest("k", 1), redlockRequest("k", 2)
	held.TTL = 2 * time.Second
	g, err := holder.TryAcquire(t.Context(), held)
	must(t, err)
	eventually(t, "it is held everywhere", func() bool { return votes(attemptOf(holder, held.Owner)).mine == 3 })
	for _, n := range r.nodes {
		eventually(t, "it listens", n.subscribed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	queued, done := make(chan bool), make(chan error, 1)
	waits.OnWait = func(*backend.LockedError) { close(queued) }
	go func() {
		_, err := r.Acquire(ctx, waits)
		done <- err
	}()
	<-queued
	a := attemptOf(r, waits.Owner)
	eventually(t, "every node has answered", func() bool { return votes(a).theirs == 3 })
	deliver := make(chan struct{})
	end := sync.OnceFunc(func() { close(deliver) })
	t.Cleanup(end)
	var asked atomic.Int64
	for i, p := range ps {
		p.Set(onScript(wire.Acquire, func() action {
			if i < hang {
				<-deliver
			} else {
				asked.Add(1)
			}
			return pass
		}))
	}
	overdue := func() bool {
		r.nodes[0].mu.Lock()
		defer r.nodes[0].mu.Unlock()
		return errors.Is(r.nodes[0].failing, errOverdue)
	}
	eventually(t, "the round ends without the nodes that hang", func() bool { return overdue() || asked.Load() > 100 })
	if n := asked.Load(); n > 20 {
		t.Errorf("the node that answers was asked %d times in one round", n)
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
	end()
	_ = g.Release(t.Context()) // over
}

func attemptOf(r *Backend, owner string) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts[owner]
}

func votes(a *attempt) tally {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count()
}

// An attempt after split votes does not count the refusals of the attempt before.
func TestRedlockTryAfterASplit(t *testing.T) {
	cs := masters(t, 3)
	r, ps := slowly(t, cs)
	req := redlockRequest("k", 1)
	for i, c := range cs[:2] {
		must(t, c.Set(t.Context(), "lock:k", []string{"one", "another"}[i], 0).Err())
		ps[i].Set(onScript(wire.Acquire, func() action {
			ps[i].Set(nil)
			for { // the free node's vote comes first
				if s, _ := attemptOf(r, req.Owner).votesFor(2); s == mine || t.Context().Err() != nil {
					return pass
				}
				time.Sleep(time.Millisecond)
			}
		}))
	}
	var asked atomic.Int64
	ask := onScript(wire.Acquire, func() action { asked.Add(1); return pass })
	free := onScript(wire.Release, func() action {
		for _, c := range cs[:2] {
			c.Del(context.Background(), "lock:k")
		}
		return pass
	})
	ps[2].Set(func(b []byte) action { ask(b); return free(b) })
	g, err := r.TryAcquire(t.Context(), req)
	must(t, err)
	eventually(t, "it was asked again", func() bool { return asked.Load() >= 2 })
	ps[2].Set(nil)
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
	must(t, g.Release(t.Context()))
}

// The outcome of a renewal that too few nodes acknowledge is unknown. If nothing was sent, it
// was not executed.
func TestRedlockRenewalWithoutMajority(t *testing.T) {
	r, ps := slowly(t, masters(t, 3))
	req := redlockRequest("k", 1)
	req.TTL = time.Minute
	g, err := r.TryAcquire(t.Context(), req)
	must(t, err)
	for _, p := range ps[:2] {
		p.Set(onScript(wire.Renew, func() action { return drop }))
	}
	if err := g.Renew(context.Background(), time.Minute); !errors.Is(err, backend.ErrUncertain) {
		t.Errorf("no answers: %v", err)
	}
	for _, p := range ps {
		p.Refuse()
		p.Cut()
	}
	eventually(t, "nothing is sent any more", func() bool {
		err := g.Renew(context.Background(), time.Minute)
		return err != nil && !errors.Is(err, backend.ErrUncertain)
	})
}
