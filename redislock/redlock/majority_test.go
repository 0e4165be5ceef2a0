package redlock

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// One vote less than a majority is not enough, with an odd and an even number of nodes.
func TestRedlockNeedsAMajority(t *testing.T) {
	cs := masters(t, 4)
	for _, n := range []int{3, 4} {
		req := redlockRequest("k", n)
		req.TTL = time.Minute
		a := newRedlock(t, cs[:n]).newAttempt(req, noQueue)
		for i := range n / 2 {
			a.asks(i, noQueue)
		}
		if g, _ := a.tryGrant(); g != nil {
			t.Errorf("granted by %d of %d nodes", n/2, n)
		}
		a.asks(n/2, noQueue)
		var g *grant
		eventually(t, "a grant by a majority", func() bool { g, _ = a.tryGrant(); return g != nil })
		must(t, g.Release(t.Context()))
	}
}

// A majority with less than half of its lease left is no grant.
func TestRedlockSlowGrant(t *testing.T) {
	req := redlockRequest("k", 1)
	req.TTL = time.Minute
	a := newRedlock(t, masters(t, 3)).newAttempt(req, noQueue)
	for i := range a.votes {
		a.asks(i, noQueue)
	}
	ends := func(left time.Duration) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for i := range a.votes {
			a.votes[i].until = time.Now().Add(left)
		}
	}
	ends(req.TTL / 3)
	if g, _ := a.tryGrant(); g != nil {
		t.Errorf("granted with %v left of %v", time.Until(g.Until()), req.TTL)
	}
	ends(req.TTL)
	eventually(t, "a grant in time", func() bool { g, _ := a.tryGrant(); return g != nil })
}

// Votes are split between the attempt and another client. It asks again only if every
// node has answered: a node whose answer was lost has a tombstone of the attempt.
func TestRedlockTriesAgain(t *testing.T) {
	cs := masters(t, 3)
	must(t, cs[2].Set(t.Context(), "lock:k", "another", 0).Err())
	for n, c := range []struct {
		name  string
		first action // of the first request to the first node
		asked int
	}{
		{"every node answered", pass, maxTries},
		{"an answer was lost", drop, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, ps := behindProxies(t, cs, nil, WithNodeTimeout(time.Minute))
			if c.first == pass { // its vote counts for no attempt
				must(t, cs[0].LPush(t.Context(), "lock:k", "x").Err())
			}
			req := redlockRequest("k", n+1)
			req.TTL = 4 * time.Minute // nothing runs out here, and no node is too slow
			ps[0].Next(wire.Acquire, c.first)
			var asked atomic.Int32
			ps[1].Set(onScript(wire.Acquire, func() action {
				if asked.Add(1); c.first == drop && asked.Load() > 1 {
					return never
				}
				return pass
			}))
			_, err := r.TryAcquire(t.Context(), req)
			if !errors.Is(err, backend.ErrLocked) || errors.Is(err, backend.ErrInvalid) {
				t.Errorf("votes split: want ErrLocked, got %v", err)
			}
			if n := int(asked.Load()); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
			must(t, cs[0].Del(t.Context(), "lock:k").Err())
			if left := cs[1].Exists(t.Context(), "lock:k").Val(); left != 0 {
				t.Error("the attempt left its vote")
			}
		})
	}
}

// A vote that arrives after the refusal is decided is released, also if its answer is lost.
func TestRedlockRefusedUndoes(t *testing.T) {
	for what, answer := range map[string]action{"the answer comes": pass, "the answer is lost": drop} {
		t.Run(what, func(t *testing.T) {
			cs := masters(t, 3)
			r, ps := behindProxies(t, cs, nil)
			req := redlockRequest("k", 1)
			req.TTL = 4 * time.Minute // nothing runs out here
			a := r.newAttempt(req, noQueue)
			for i := 1; i <= 2; i++ {
				must(t, cs[i].Set(t.Context(), "lock:k", "another", 0).Err())
				a.asks(i, noQueue)
			}
			_, counted := a.tryGrant()
			ps[0].Next(wire.Acquire, answer)
			a.asks(0, noQueue)
			if cs[0].Exists(t.Context(), "lock:k").Val() != 1 {
				t.Fatal("the free node's vote is missing")
			}
			if err := a.fail(counted, nil); !errors.Is(err, backend.ErrLocked) {
				t.Errorf("want ErrLocked, got %v", err)
			}
			eventually(t, "the vote is given back", func() bool { return cs[0].Exists(t.Context(), "lock:k").Val() == 0 })
		})
	}
}

// A node that is out of reach at the release gets the release later.
func TestRedlockCleansUp(t *testing.T) {
	cs := masters(t, 3)
	r, ps := behindProxies(t, cs, nil)
	req := redlockRequest("k", 1)
	req.TTL = 4 * time.Minute // nothing runs out here
	g, err := r.TryAcquire(t.Context(), req)
	must(t, err)
	held := func() bool { return cs[0].Exists(t.Context(), "lock:k").Val() == 1 }
	eventually(t, "the vote of the third node", held)
	ps[0].Set(func([]byte) action { return never })
	ps[0].Cut()
	must(t, g.Release(t.Context()))
	if !held() {
		t.Fatal("a node out of reach got the release")
	}
	ps[0].Set(nil)
	eventually(t, "the node gets the release", func() bool { return !held() })
}

// So it is by the abandoning of an attempt that this process knows nothing of.
func TestRedlockAbandonsWhatItDoesNotKnow(t *testing.T) {
	cs := masters(t, 3)
	req := redlockRequest("k", 1)
	req.TTL = 4 * time.Minute // nothing runs out here
	a := newRedlock(t, cs).newAttempt(req, noQueue)
	r, ps := behindProxies(t, cs, nil)
	for i := range cs {
		a.asks(i, noQueue)
	}
	ps[0].Set(func([]byte) action { return never })
	ps[0].Cut()
	must(t, r.Abandon(t.Context(), req))
	for i, want := range []int64{1, 0, 0} {
		if n := cs[i].Exists(t.Context(), "lock:k").Val(); n != want {
			t.Errorf("node %d: want %d grants, got %d", i, want, n)
		}
	}
	ps[0].Set(nil)
	eventually(t, "the node gets the release", func() bool { return cs[0].Exists(t.Context(), "lock:k").Val() == 0 })
}
