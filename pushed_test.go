package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// pushing is a fake with a queue: a grant lasts for provisional at first.
type pushing struct{ *fake }

const provisional = 3 * time.Second

func newPushing() *pushing {
	f := newFake()
	f.claim = provisional
	return &pushing{f}
}

func (p *pushing) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	req.OnWait(&backend.LockedError{})
	return p.TryAcquire(ctx, req)
}

func mustWait(t *testing.T, m lock.Mutex) *lock.Lease {
	t.Helper()
	l, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestPushedGrantIsCompletedInTime(t *testing.T) {
	for _, ttl := range []time.Duration{5 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := newPushing()
			c := newClient(t, p, lock.WithTTL(ttl))
			start := time.Now()
			l := mustWait(t, c.Mutex("renewed"))
			if got := l.Expires().Sub(start); got > provisional {
				t.Fatalf("a grant of 3s is trusted for %v", got)
			}
			time.Sleep(25 * time.Millisecond)
			if got, want := time.Until(l.Expires()), ttl-lock.Margin(ttl)-25*time.Millisecond; got < want {
				t.Fatalf("after the first renewal %v are left, want %v", got, want)
			}
			fixed := mustWait(t, c.Mutex("fixed", lock.WithoutRenewal(), lock.WithMinHold(ttl)))
			start = time.Now()
			if got := lostAfter(t, fixed, start); got < ttl-lock.Margin(ttl) {
				t.Fatalf("a fixed lease of %v that was pushed ended after %v", ttl, got)
			}
			short := mustWait(t, c.Mutex("short"))
			n := p.count("renew")
			if err := short.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p.count("renew") != n {
				t.Fatal("a pushed grant that was unlocked at once cost a renewal")
			}
		})
	}
}

// An outage that begins right after a lock was granted by push is survived for the TTL.
func TestOutageAfterAPushedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPushing()
		l := mustWait(t, newClient(t, p, lock.WithTTL(10*time.Second)).Mutex("k"))
		time.Sleep(25 * time.Millisecond)
		healed := time.Now().Add(8 * time.Second)
		p.setSpoil(func(context.Context, string, int) (error, bool) {
			if time.Now().Before(healed) {
				return backend.NotExecuted(errNet), false
			}
			return nil, true
		})
		time.Sleep(9 * time.Second)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
	})
}

// An Unlock does not cancel the renewal in flight: a driver may have to close the connection.
func TestUnlockDuringTheFirstRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPushing()
		p.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "renew" || op == "release" {
				select {
				case <-time.After(4 * time.Millisecond):
				case <-ctx.Done():
					t.Errorf("%s was cancelled", op)
				}
			}
			return nil, true
		}
		c := newClient(t, p, lock.WithTTL(10*time.Second))
		l := mustWait(t, c.Mutex("k"))
		time.Sleep(22 * time.Millisecond)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := p.count("renew"); n != 1 || p.holder("k") != "" {
			t.Fatalf("%d renewals, holder %q", n, p.holder("k"))
		}
		mustWait(t, c.Mutex("k"))
	})
}

// A grant for the whole TTL whose reply took long is not provisional.
func TestSlowReplyIsNoPushedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPushing()
		p.claim = 0
		p.spoil = func(context.Context, string, int) (error, bool) {
			time.Sleep(3 * time.Second)
			return nil, true
		}
		mustLock(t, newClient(t, p, lock.WithTTL(10*time.Second)).Mutex("k"))
		p.setSpoil(nil)
		time.Sleep(time.Second)
		if n := p.count("renew"); n != 0 {
			t.Fatalf("%d renewals in the first second", n)
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
