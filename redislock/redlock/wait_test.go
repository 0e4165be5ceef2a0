package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

type granted struct {
	grant backend.Grant
	err   error
	after time.Duration
}

// waits begins to wait for a key, and returns when the attempt waits.
func waits(t *testing.T, ctx context.Context, r *Backend, req backend.Request) <-chan granted {
	t.Helper()
	waiting, got := make(chan bool, 1), make(chan granted, 1)
	req.OnWait = func(*backend.LockedError) { waiting <- true }
	begun := time.Now()
	go func() {
		g, err := r.Acquire(ctx, req)
		got <- granted{g, err, time.Since(begun)}
	}()
	select {
	case <-waiting:
	case g := <-got:
		t.Fatalf("it does not wait: %v", g.err)
	}
	synctest.Wait()
	return got
}

// A waiter asks when the key is released, and about once in a TTL of the holder before.
func TestRedlockReleaseWakes(t *testing.T) {
	virtual(t, 5, func(t *testing.T, c cluster) {
		holder, _ := c.open()
		other, ms := c.open()
		g, err := holder.TryAcquire(t.Context(), redlockRequest("k", 1))
		must(t, err)
		next := waits(t, t.Context(), other, redlockRequest("k", 2))
		before := ms[0].count("acquire")
		for range 20 { // 60 s
			time.Sleep(3 * time.Second)
			must(t, g.Renew(t.Context(), 10*time.Second))
		}
		if n := ms[0].count("acquire") - before; n < 5 || n > 10 {
			t.Errorf("a waiter asked %d times in 6 TTLs of a holder that renews", n)
		}
		released := time.Now()
		must(t, g.Release(t.Context()))
		n := <-next
		must(t, n.err)
		if took := time.Since(released); took > 2*time.Millisecond {
			t.Errorf("the next holder came after %v", took)
		}
		if n.grant.Token() <= g.Token() {
			t.Errorf("token %d after %d", n.grant.Token(), g.Token())
		}
	})
}

// A waiter is granted the key when the lease of a dead holder ends at a majority, without an event.
func TestRedlockLeaseEnds(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		holder, _ := c.open()
		other, _ := c.open()
		_, err := holder.TryAcquire(t.Context(), redlockRequest("k", 1))
		must(t, err)
		g := <-waits(t, t.Context(), other, redlockRequest("k", 2))
		must(t, g.err)
		if g.after < 10*time.Second || g.after > 10*time.Second+20*time.Millisecond {
			t.Errorf("granted after %v, want the TTL", g.after)
		}
	})
}

// A process that locks again at once lets the others go first, also if they are far from the nodes.
func TestRedlockRelocks(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		near, _ := c.open()
		far, ms := c.open()
		for _, m := range ms {
			m.slow(20 * time.Millisecond)
		}
		g, err := near.TryAcquire(t.Context(), redlockRequest("k", 1))
		must(t, err)
		next := waits(t, t.Context(), far, redlockRequest("k", 2))
		for i := range 20 {
			must(t, g.Release(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			again := make(chan granted, 1)
			go func() {
				g, err := near.Acquire(ctx, redlockRequest("k", i+3))
				again <- granted{g, err, 0}
			}()
			select {
			case n := <-next:
				must(t, n.err)
				if i > 7 {
					t.Errorf("the other process waited for %d holds", i)
				}
				must(t, n.grant.Release(t.Context()))
				n = <-again
				must(t, n.err)
				cancel()
				return
			case n := <-again:
				must(t, n.err)
				g = n.grant
			}
			time.Sleep(10 * time.Millisecond) // the work under the lock
			cancel()
		}
		t.Error("the other process never got the lock")
	})
}

// A waiter whose context ends leaves nothing, and does not keep others from the key.
func TestRedlockCancelledWaiter(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		g, err := r.TryAcquire(t.Context(), redlockRequest("k", 1))
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		req := redlockRequest("k", 2)
		got := waits(t, ctx, r, req)
		cancel()
		if n := <-got; n.err == nil {
			t.Error("granted")
		}
		must(t, r.Abandon(t.Context(), req))
		must(t, g.Release(t.Context()))
		synctest.Wait()
		if n := c.votesFor("k", ""); n != 3 || len(r.svc.attempts) != 0 || len(r.svc.keys.all) != 0 || ms[0].Listening("k") {
			t.Errorf("%d nodes are free, want 3; %d attempts, %d keys", n, len(r.svc.attempts), len(r.svc.keys.all))
		}
	})
}

// Late announcements of the failed rounds of a holder do not count as those of its release.
func TestReleaseOfAHolderWhoseRoundsHadFailed(t *testing.T) {
	for name, together := range map[string]bool{"waiter of the same process": true, "of another": false} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 5, func(t *testing.T, c cluster) {
				p, ms := c.open()
				other := p
				if !together {
					other, ms = c.open()
				}
				req := redlockRequest("k", 1)
				g, err := p.TryAcquire(t.Context(), req)
				must(t, err)
				next := waits(t, t.Context(), other, redlockRequest("k", 2))
				for _, m := range ms[:3] {
					m.announce("k", req.Owner)
				}
				time.Sleep(time.Second)
				must(t, g.Release(t.Context()))
				time.Sleep(time.Second)
				select {
				case n := <-next:
					must(t, n.err)
					must(t, n.grant.Release(t.Context()))
				default:
					t.Error("no grant in the second after the release")
				}
			})
		})
	}
}

// A release wakes a waiter whatever step of its requests it meets.
func TestReleaseWhileAsking(t *testing.T) {
	for after := time.Millisecond; after < 80*time.Millisecond; after += 3 * time.Millisecond {
		virtual(t, 5, func(t *testing.T, c cluster) {
			holder, _ := c.open()
			other, ms := c.open()
			for _, m := range ms {
				m.slow(10 * time.Millisecond)
			}
			g, err := holder.TryAcquire(t.Context(), redlockRequest("k", 1))
			must(t, err)
			time.AfterFunc(after, func() { must(t, g.Release(t.Context())) })
			begun := time.Now()
			next, err := other.Acquire(t.Context(), redlockRequest("k", 2))
			must(t, err)
			if took := time.Since(begun) - after; took > 200*time.Millisecond {
				t.Errorf("released after %v: the next holder came %v later", after, took)
			}
			must(t, next.Release(t.Context()))
		})
	}
}

// An attempt that ends the grants of a failed round does not make the waiters ask.
func TestFailedRoundWakesNoWaiter(t *testing.T) {
	virtual(t, 5, func(t *testing.T, c cluster) {
		r, ms := c.open()
		for i := range ms {
			c.taken(i, "k", "another", time.Hour)
		}
		ctx, cancel := context.WithCancel(t.Context())
		next := waits(t, ctx, r, redlockRequest("k", 1))
		before := ms[0].count("acquire")
		for _, m := range ms {
			m.announce("k", "failed")
			time.Sleep(time.Second)
		}
		if n := ms[0].count("acquire") - before; n > 0 {
			t.Errorf("the waiter asked %d times", n)
		}
		cancel()
		<-next
	})
}
