package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

func TestMinHoldOfAClaimThatCannotBeRenewedAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.claim = 3 * time.Second
		c := newClient(t, f, lock.WithTTL(30*time.Second), lock.WithMinHold(time.Minute))
		l := mustLock(t, c.Mutex("k"))
		start := time.Now()
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" && time.Since(start) < 2900*time.Millisecond {
				return errNet, false
			}
			return nil, true
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59*time.Second - time.Since(start))
		if f.holder("k") == "" {
			t.Fatal("the minimum hold was cut short")
		}
		time.Sleep(2 * time.Second)
		if f.holder("k") != "" {
			t.Fatal("the minimum hold was exceeded")
		}
	})
}

// The service keeps the lock for the margin longer than it is trusted, and for longer than
// that where the client counts the TTL.
func TestMinHoldOfALeaseThatExpires(t *testing.T) {
	for _, loss := range []backend.Loss{backend.LossTTL, backend.LossProcess} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.caps.Loss = loss
			l := mustLock(t, newClient(t, f, lock.WithTTL(5*time.Second), lock.WithMinHold(5*time.Second), lock.WithoutRenewal()).Mutex("k"))
			start := time.Now()
			lostAfter(t, l, start)
			time.Sleep(time.Until(start.Add(4990 * time.Millisecond)))
			if f.holder("k") == "" {
				t.Fatal("the loss ended the minimum hold")
			}
			time.Sleep(time.Second)
			if f.holder("k") != "" {
				t.Fatal("the minimum hold was exceeded")
			}
		})
	}
}

func TestMinHoldIsNotTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		c := newClient(t, space.Backend(), lock.WithTTL(time.Hour), lock.WithMinHold(time.Minute))
		start := time.Now()
		l := mustLock(t, c.Mutex("k"))
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := newClient(t, space.Backend()).Mutex("k").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Fatalf("the next holder came after %v", took)
		}
	})
}

func TestMinHoldOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f, lock.WithMinHold(time.Minute)).Mutex("k"))
		f.take("k", "other", time.Hour)
		wantErr(t, "Unlock of a lock that was lost", l.Unlock(t.Context()), lock.ErrLost)
	})
}

// While the service is away a minimum hold asks as often as a renewal does.
func TestMinHoldInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f, lock.WithTTL(30*time.Second), lock.WithMinHold(10*time.Minute)).Mutex("k"))
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" {
				return errNet, false
			}
			return nil, true
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		before := f.count("renew")
		time.Sleep(time.Minute)
		if n := f.count("renew") - before; n < 10 || n > 25 {
			t.Errorf("%d requests in a minute in which each failed, TTL 30s", n)
		}
	})
}

// What is given back unused is not the outer lease's: its minimum hold stays.
func TestMinHoldOfAnOuterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithReentry())
		outer := mustLock(t, c.Mutex("a", lock.WithMinHold(time.Minute)))
		f.take("b", "other", time.Hour)
		if _, err := lock.All(c.Mutex("a"), c.Mutex("b")).TryLock(outer.Context()); !errors.Is(err, lock.ErrLocked) {
			t.Fatalf("All with a lock that is held: %v", err)
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		if f.holder("a") == "" {
			t.Error("freed before its minimum hold had passed")
		}
	})
}

func TestMinHoldBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var mu sync.Mutex
		most := time.Duration(0)
		b := &spoilt{fake: f, wrap: func(g backend.Grant) backend.Grant {
			return &spoiltGrant{Grant: g, renew: func(ctx context.Context, ttl time.Duration, g backend.Grant) error {
				mu.Lock()
				most = max(most, ttl)
				mu.Unlock()
				return g.Renew(ctx, ttl)
			}}
		}}
		c, err := lock.New(b, lock.WithMinHold(3*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		mustLock(t, c.Mutex("closed"))
		l := mustLock(t, c.Mutex("unlocked"))
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour + 59*time.Minute)
		if f.holder("unlocked") == "" {
			t.Fatal("a minimum hold beyond the greatest TTL was cut short")
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most > time.Hour {
			t.Fatalf("a backend with a greatest TTL of 1h was asked for %v", most)
		}
		_, err = newClient(t, f).Mutex("k", lock.WithMinHold(time.Minute), lock.WithoutRenewal()).Lock(t.Context())
		wantErr(t, "a minimum hold longer than a fixed lease", err, lock.ErrInvalid)
	})
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl))
		start := time.Now()
		l := mustLock(t, c.Mutex("k", lock.WithMinHold(time.Minute)))
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) != 0 {
			t.Fatal("Unlock waited for the minimum hold")
		}
		wantErr(t, "Err", l.Err(), lock.ErrReleased)
		if _, err := c.Mutex("k").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+time.Second {
			t.Fatalf("the next holder came after %v", took)
		}

		// a client that closes leaves the rest to the TTL
		f2 := newFake()
		c2 := newClient(t, f2, lock.WithTTL(ttl))
		l2 := mustLock(t, c2.Mutex("k", lock.WithMinHold(time.Minute)))
		_ = l2.Unlock(t.Context())
		held := mustLock(t, c2.Mutex("held", lock.WithMinHold(time.Minute)))
		if err := c2.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Err of a lease whose client closed", held.Err(), lock.ErrClosed)
		time.Sleep(59 * time.Second)
		if f2.holder("k") == "" || f2.holder("held") == "" {
			t.Fatal("closing ended the minimum hold")
		}
		time.Sleep(2 * time.Second)
		if f2.holder("k") != "" || f2.holder("held") != "" {
			t.Fatal("the lock outlived the minimum hold of a closed client")
		}
	})
}
