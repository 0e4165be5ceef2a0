package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func TestPushedGrantIsCompletedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.claim = 3 * time.Second
		c := newClient(t, f, lock.WithTTL(30*time.Second))
		start := time.Now()
		l := mustLock(t, c.Mutex("renewed"))
		if got := l.Expires().Sub(start); got > 3*time.Second {
			t.Fatalf("a claim of 3s is trusted for %v", got)
		}
		time.Sleep(2 * time.Second)
		if got := time.Until(l.Expires()); got < 20*time.Second {
			t.Fatalf("after the first renewal %v are left", got)
		}
		if first := f.times[0].Sub(start); first > 1100*time.Millisecond {
			t.Fatalf("the claim was renewed after %v", first)
		}
		fixed := mustLock(t, c.Mutex("fixed", lock.WithoutRenewal()))
		start, n := time.Now(), f.count("renew")
		if got := lostAfter(t, fixed, start); got < 29*time.Second {
			t.Fatalf("a fixed lease of 30s that began with a claim ended after %v", got)
		}
		_ = n
		short := mustLock(t, c.Mutex("short"))
		n = f.count("renew")
		if err := short.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.count("renew") != n {
			t.Fatal("a claim that was unlocked at once cost a renewal")
		}
	})
}

func TestPushedLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl))
		start := time.Now()
		l := mustLock(t, c.Mutex("k"))
		f.onLost[l.Owner()](nil)
		f.onLost[l.Owner()](nil)
		if got := lostAfter(t, l, start); got != 0 {
			t.Fatalf("a pushed loss took %v", got)
		}
		// a loss that comes before the grant was returned
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) { return nil, true }
		early := &earlyLoss{f}
		c2 := newClient(t, early, lock.WithTTL(ttl))
		l2 := mustLock(t, c2.Mutex("j"))
		wantErr(t, "a lease lost before it was returned", l2.Err(), lock.ErrLost)
	})
}

type earlyLoss struct{ *fake }

func (e *earlyLoss) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	g, err := e.fake.TryAcquire(ctx, req)
	req.OnLost(nil)
	return g, err
}
