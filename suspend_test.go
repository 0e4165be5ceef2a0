package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// The monotonic clock stands still while a machine is suspended, and with it all timers.
func TestSuspendedMachine(t *testing.T) {
	const ttl = 9 * time.Second
	synctest.Test(t, func(t *testing.T) {
		slept := time.Duration(0)
		defer lock.SetSuspended(func() time.Duration { return slept })()
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl))
		before := mustLock(t, c.Mutex("before"))
		timers := mustLock(t, c.Mutex("timers"))
		f.setSpoil(func(context.Context, string, int) (error, bool) { return backend.NotExecuted(errNet), false })
		slept += 8 * time.Second
		if err := before.Err(); err != nil {
			t.Fatalf("suspended for less than the TTL: %v", err)
		}
		slept += time.Second
		wantErr(t, "Err after a suspension of a TTL", before.Err(), lock.ErrLost)
		wantErr(t, "Err of its context", before.Context().Err(), context.Canceled)
		// Without a question the timer of the renewal notices it.
		if took := lostAfter(t, timers, time.Now()); took > ttl/3 {
			t.Errorf("the loss was noticed after %v", took)
		}
		f.setSpoil(nil)
		if err := mustLock(t, c.Mutex("after")).Err(); err != nil {
			t.Fatalf("a lease that was granted afterwards: %v", err)
		}
	})
}

// sleeper is a fake with a queue. When it has granted a request, the machine of its client is suspended.
type sleeper struct {
	*fake
	sleep func(req backend.Request)
}

func (s *sleeper) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	for {
		g, err := s.TryAcquire(ctx, req)
		if !errors.Is(err, backend.ErrLocked) {
			s.sleep(req)
			return g, err
		}
		time.Sleep(10 * time.Millisecond) // until it asks again
	}
}

// A grant that Lock has waited for may have expired while the machine was suspended.
func TestSuspendedDuringLock(t *testing.T) {
	const ttl = 9 * time.Second
	suspended := func(t *testing.T, opt lock.Option, sleep func(*fake, backend.Request) time.Duration) (*fake, *lock.Client) {
		slept := time.Duration(0)
		t.Cleanup(lock.SetSuspended(func() time.Duration { return slept }))
		f := newFake()
		s := &sleeper{fake: f, sleep: func(req backend.Request) { slept += sleep(f, req) }}
		return f, newClient(t, s, lock.WithTTL(ttl), opt)
	}
	synctest.Test(t, func(t *testing.T) {
		asleep := ttl
		f, c := suspended(t, lock.WithObserver(nil), func(f *fake, req backend.Request) time.Duration {
			defer func() { asleep = 0 }()
			if asleep > 0 {
				f.take(req.Key, "successor", time.Minute)
			}
			return asleep
		})
		start := time.Now()
		l := mustWait(t, c.Mutex("k"))
		if took := time.Since(start); took < time.Minute || f.holder("k") != l.Owner() {
			t.Errorf("Lock whose grant expired during a suspension: want it after the successor, it returned after %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f, c := suspended(t, lock.WithObserver(nil), func(*fake, backend.Request) time.Duration { return time.Hour })
		l := mustWait(t, c.Mutex("k"))
		if n := f.count("renew"); n != 1 {
			t.Errorf("a grant that the service has kept: want it confirmed by a renewal, there were %d", n)
		}
		if left, want := time.Until(l.Expires()), ttl-lock.Margin(ttl); left != want || l.Err() != nil {
			t.Errorf("a grant that was confirmed: want it trusted for %v, it is for %v, %v", want, left, l.Err())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f, c := suspended(t, lock.WithObserver(nil), func(f *fake, _ backend.Request) time.Duration {
			f.setSpoil(func(_ context.Context, op string, _ int) (error, bool) {
				if op == "renew" {
					return backend.NotExecuted(errNet), false
				}
				return nil, true
			})
			return ttl
		})
		_, err := c.Mutex("k").Lock(t.Context())
		if err == nil || !strings.Contains(err.Error(), "suspended") || !strings.Contains(err.Error(), errNet.Error()) {
			t.Errorf("a grant that cannot be confirmed: want an error that says why, got %v", err)
		}
		synctest.Wait()
		if owner := f.holder("k"); owner != "" {
			t.Errorf("a grant that could not be confirmed: want it released, %s holds the key", owner)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a grant is not passed on to a waiter that came after the suspension
		asleep := ttl
		_, c := suspended(t, lock.WithLocalHandOff(), func(*fake, backend.Request) time.Duration { return asleep })
		first := mustWait(t, c.Mutex("k"))
		asleep = 0
		second := make(chan *lock.Lease)
		go func() {
			l, err := c.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			second <- l
		}()
		synctest.Wait()
		if err := first.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		before, _ := first.BackendHold()
		if after, _ := (<-second).BackendHold(); after == before {
			t.Error("a grant that came while the machine was suspended was passed on")
		}
	})
}
