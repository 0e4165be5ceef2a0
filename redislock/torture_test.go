package redislock

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// Many goroutines of several clients, some of which are closed, with random cancellations:
// at most one holder, tokens rise, nothing remains.
func TestTorture(t *testing.T) {
	p := newPrefix()
	d := 2 * time.Second
	if testing.Short() {
		d = 300 * time.Millisecond
	}
	var mu sync.Mutex
	var inside backend.Grant
	var last uint64
	// No lease is renewed, and an expired grant does not count.
	enter := func(g backend.Grant) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if !now.Before(g.Until()) {
			return
		}
		if inside != nil && now.Before(inside.Until()) {
			t.Error("two inside")
		}
		if g.Token() <= last {
			t.Errorf("token %d after %d", g.Token(), last)
		}
		inside, last = g, g.Token()
	}
	leave := func(g backend.Grant) {
		mu.Lock()
		defer mu.Unlock()
		if inside == g {
			inside = nil
		}
	}
	var grants, cancels atomic.Int64
	stop := time.Now().Add(d)
	work := func(b *Backend, end time.Time, dropped bool) {
		for time.Now().Before(end) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			if rand.N(3) == 0 {
				cancel()
				ctx, cancel = context.WithTimeout(context.Background(), rand.N(10*time.Millisecond))
			}
			r := request("k")
			r.TTL = time.Second
			var g backend.Grant
			var err error
			if rand.N(5) == 0 {
				g, err = b.TryAcquire(ctx, r)
			} else {
				g, err = b.Acquire(ctx, r)
			}
			cancel()
			if isUncertain(err) {
				cancels.Add(1)
				if err := b.Abandon(context.Background(), r); err != nil && !dropped {
					t.Errorf("Abandon: %v", err)
				}
			}
			if err != nil {
				continue
			}
			grants.Add(1)
			enter(g)
			leave(g)
			if err := released(g); err != nil && !dropped {
				t.Errorf("Release: %v", err)
			}
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		b := newBackend(t, p)
		for range 8 {
			wg.Go(func() { work(b, stop, false) })
		}
		wg.Go(func() { // polls that cross with pushes
			for time.Now().Before(stop) {
				b.svc.subs.pollNow(b.svc.proc.Channel())
				time.Sleep(rand.N(2 * time.Millisecond)) // the rate, not a synchronisation
			}
		})
	}
	// two clients that go away in the middle, with what they hold and wait for
	for i := range 2 {
		c := redis.NewClient(&redis.Options{Addr: sharedServer(t)})
		b, err := New(c, WithPrefix(p))
		must(t, err)
		var of sync.WaitGroup
		for range 4 {
			of.Go(func() { work(b, stop.Add(-d/time.Duration(i+2)), true) })
		}
		wg.Go(func() {
			time.Sleep(d / time.Duration(i+3)) // the length of the run, not a synchronisation
			_ = c.Close()
			of.Wait()
			closeBackend(t, b)
		})
	}
	wg.Wait()
	b := newBackend(t, p)
	eventually(t, "the lock has no holder and no waiter", func() bool {
		in, err := b.Inspect(t.Context(), "k")
		must(t, err)
		return in.Holder == nil && len(in.Waiters) == 0
	})
	t.Logf("%d grants, %d given up", grants.Load(), cancels.Load())
}
