package redlock

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// cluster is a Redlock of fake servers.
type cluster struct {
	servers []*fake
	open    func(opts ...Option) (*Backend, []*member)
}

// virtual runs a test with n servers in virtual time, on one thread: with more, the race detector of Go 1.26 may crash when
// a context and a timer of a bubble end at the same time.
func virtual(t *testing.T, n int, f func(t *testing.T, c cluster)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	servers, clients := newFakes(t, n)
	synctest.Test(t, func(t *testing.T) {
		epoch = time.Now()
		f(t, cluster{servers, func(opts ...Option) (*Backend, []*member) {
			r := newRedlock(t, clients, opts...)
			var ms []*member
			for _, s := range servers {
				ms = append(ms, s.members[len(s.members)-1])
			}
			return r, ms
		}})
	})
}

// holders returns the owner at each server, "" where the key is free.
func (c cluster) holders(key string) (all []string) {
	for _, s := range c.servers {
		s.mu.Lock()
		h := s.holds[key]
		if time.Now().After(h.until) {
			h.owner = ""
		}
		all = append(all, h.owner)
		s.mu.Unlock()
	}
	return all
}

func (c cluster) votesFor(key, owner string) (n int) {
	for _, o := range c.holders(key) {
		if o == owner {
			n++
		}
	}
	return n
}

// taken makes another program hold a key at a server.
func (c cluster) taken(i int, key, owner string, ttl time.Duration) {
	s := c.servers[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[key] = hold{owner: owner, until: time.Now().Add(ttl)}
}

func TestRedlockNeedsAMajority(t *testing.T) {
	virtual(t, 5, func(t *testing.T, c cluster) {
		r, ms := c.open()
		for i := range 3 {
			c.taken(i, "k", "another", time.Hour)
		}
		if _, err := r.TryAcquire(t.Context(), redlockRequest("k", 1)); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("held by another at three of five: want ErrLocked, got %v", err)
		}
		if n := c.votesFor("k", ""); n != 2 {
			t.Errorf("after it: %d nodes are free, want 2: the grants of a minority are released", n)
		}
		for i := range 3 {
			ms[i].set("acquire", down)
		}
		_, err := r.TryAcquire(t.Context(), redlockRequest("k2", 2))
		if err == nil || backend.OutcomeUnknown(err) || !strings.Contains(err.Error(), "2 of 5 nodes voted, want 3: node ") {
			t.Errorf("three of five are down: %v", err)
		}
		if n := c.votesFor("k2", ""); n != 5 {
			t.Errorf("after it: %d nodes are free, want 5", n)
		}
	})
}

// A grant with less than half of its lease left is released.
func TestRedlockSlowGrant(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open(WithNodeTimeout(time.Minute))
		req := redlockRequest("k", 1)
		req.TTL = 2 * time.Second
		for _, m := range ms {
			m.slow(499 * time.Millisecond)
		}
		g, err := r.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatalf("after 998 ms of 2 s: %v", err)
		}
		if want := time.Second + 2*time.Millisecond; time.Until(g.Until()) != want {
			t.Errorf("its lease: %v, want %v", time.Until(g.Until()), want)
		}
		if err := g.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for _, m := range ms {
			m.slow(501 * time.Millisecond)
		}
		req = redlockRequest("k", 2)
		req.TTL = 2 * time.Second
		if _, err := r.TryAcquire(t.Context(), req); err == nil || !errors.Is(err, backend.ErrUncertain) {
			t.Errorf("after 1002 ms of 2 s: %v", err)
		}
		for _, m := range ms {
			m.slow(0)
		}
		must(t, r.Abandon(t.Context(), req))
		synctest.Wait()
		if n := c.votesFor("k", ""); n != 3 {
			t.Errorf("after it: %d nodes are free", n)
		}
	})
}

// The nodes disagree about the last token: the next one is greater than all that a majority met, and a majority has it
// before the grant is reported.
func TestRedlockWritesTheTokenBack(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		const far = uint64(4e15) // beyond any clock of today
		c.servers[1].mu.Lock()
		c.servers[1].last["k"] = far
		c.servers[1].mu.Unlock()
		ms[0].slow(time.Millisecond) // the others decide
		var before uint64
		for i := range 10 {
			g, err := r.TryAcquire(t.Context(), redlockRequest("k", i+1))
			if err != nil {
				t.Fatal(err)
			}
			have := 0
			for _, s := range c.servers {
				s.mu.Lock()
				if s.last["k"] >= g.Token() {
					have++
				}
				s.mu.Unlock()
			}
			if have < 2 || g.Token() <= before {
				t.Errorf("token %d after %d is at %d of 3 nodes when it is reported", g.Token(), before, have)
			}
			before = g.Token()
			if err := g.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if before <= far {
			t.Errorf("token %d, want it greater than that of any node, %d", before, far)
		}
	})
}

// A node that grants the key after the refusal is decided gets a release.
func TestRedlockRefusedUndoes(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		c.taken(0, "k", "another", time.Hour)
		c.taken(1, "k", "another", time.Hour)
		ms[2].slow(50 * time.Millisecond)
		if _, err := r.TryAcquire(t.Context(), redlockRequest("k", 1)); !errors.Is(err, backend.ErrLocked) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := c.votesFor("k", ""); n != 1 || len(r.svc.attempts) != 0 {
			t.Errorf("%d nodes are free, want 1", n)
		}
	})
}

// A request sent twice is granted once, with one token, also while nodes have not answered the first.
func TestRedlockSentTwice(t *testing.T) {
	virtual(t, 5, func(t *testing.T, c cluster) {
		r, ms := c.open()
		ms[4].slow(50 * time.Millisecond)
		req := redlockRequest("k", 1)
		g, err := r.TryAcquire(t.Context(), req)
		must(t, err)
		again, err := r.TryAcquire(t.Context(), req)
		must(t, err)
		if g.Token() != again.Token() {
			t.Errorf("tokens %d and %d", g.Token(), again.Token())
		}
		time.Sleep(time.Second)
		if n := c.votesFor("k", req.Owner); n != 5 {
			t.Errorf("held at %d nodes, want 5", n)
		}
	})
}

// A request without an answer that a node executes after the end of its attempt leaves nothing.
func TestRedlockLateAcquire(t *testing.T) {
	for _, how := range []string{"released", "refused", "abandoned"} {
		t.Run(how, func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, c cluster) {
				r, ms := c.open()
				ms[2].set("acquire", late)
				req := redlockRequest("k", 1)
				req.TTL = time.Hour / 60
				switch how {
				case "released":
					g, err := r.TryAcquire(t.Context(), req)
					must(t, err)
					time.Sleep(5 * time.Second) // the request has failed by now
					must(t, g.Release(t.Context()))
				case "refused":
					c.taken(0, "k", "another", time.Second)
					c.taken(1, "k", "another", time.Second)
					if _, err := r.TryAcquire(t.Context(), req); !errors.Is(err, backend.ErrLocked) {
						t.Error(err)
					}
				case "abandoned":
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, _ = ms[2].Acquire(ctx, req, 0) // of a process that has died
					cancel()
					must(t, r.Abandon(t.Context(), req))
				}
				time.Sleep(90 * time.Second)
				if n := c.votesFor("k", ""); n != 3 {
					t.Errorf("%d nodes are free, want 3", n)
				}
			})
		})
	}
}

// A release of a minority's grant that has no answer may be executed when the attempt has the grant again. The node is
// not counted.
func TestRedlockLateUndo(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		c.taken(0, "k", "another", time.Hour)
		c.taken(1, "k", "a third", 5*time.Second)
		ms[2].set("end", late)
		time.AfterFunc(100*time.Millisecond, func() { ms[2].set("end", none) }) // after the first round
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if g, err := r.Acquire(ctx, redlockRequest("k", 1)); err == nil {
			t.Errorf("granted, with token %d, by a node that will release the grant", g.Token())
		}
	})
}

func TestRedlockRenewal(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		take := func(i int) backend.Grant {
			g, err := r.TryAcquire(t.Context(), redlockRequest("k", i))
			must(t, err)
			synctest.Wait()
			return g
		}
		g := take(1)
		for _, m := range ms[:2] {
			m.set("renew", lostReply)
		}
		if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrUncertain) {
			t.Errorf("without a majority of answers: %v", err)
		}
		for _, m := range ms {
			m.set("renew", down)
		}
		if err := g.Renew(t.Context(), time.Minute); err == nil || backend.OutcomeUnknown(err) {
			t.Errorf("nothing was sent: %v", err)
		}
		for _, m := range ms {
			m.set("renew", none)
		}
		c.servers[0].empty() // restarted without its data
		for range 2 {        // the first may return before the answer that the node has lost it
			must(t, g.Renew(t.Context(), time.Minute))
			synctest.Wait()
		}
		if n := c.votesFor("k", redlockRequest("k", 1).Owner); n != 3 {
			t.Errorf("after a renewal that a majority has confirmed: held at %d nodes, want 3", n)
		}
		for i := range 2 {
			c.servers[i].empty()
		}
		if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
			t.Errorf("lost by a majority: %v", err)
		}
		synctest.Wait()
		if n := c.votesFor("k", ""); n != 3 {
			t.Errorf("after a loss: %d nodes are free, want 3", n)
		}
	})
}

// A release that one node has not acknowledged is repeated in the background.
func TestRedlockCleansUp(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		req := redlockRequest("k", 1)
		req.TTL = time.Hour / 60
		g, err := r.TryAcquire(t.Context(), req)
		must(t, err)
		synctest.Wait()
		ms[2].set("end", down)
		must(t, g.Release(t.Context()))
		time.Sleep(10 * time.Second)
		if n := c.votesFor("k", ""); n != 2 {
			t.Errorf("%d nodes are free, want 2", n)
		}
		ms[2].set("end", none)
		time.Sleep(time.Second)
		if n := c.votesFor("k", ""); n != 3 || r.svc.known(req.Owner) != nil {
			t.Errorf("%d nodes are free, want 3", n)
		}
	})
}

// Three processes ask at the same time, again and again.
func TestRedlockSplitVotesConverge(t *testing.T) {
	virtual(t, 5, func(t *testing.T, c cluster) {
		var all sync.WaitGroup
		for p := range 3 {
			r, ms := c.open()
			for i, m := range ms {
				m.slow(time.Duration(1+(i+2*p)%5) * time.Millisecond) // each has its near nodes
			}
			for n := range 5 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					g, err := r.Acquire(ctx, redlockRequest("k", 100*p+n+1))
					if err != nil {
						t.Error(err)
						return
					}
					must(t, g.Release(t.Context()))
				})
			}
		}
		begun := time.Now()
		all.Wait()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("15 locks took %v: want no lease waited for", took)
		}
	})
}
