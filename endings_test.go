package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// spoilt wraps the grants of a fake.
type spoilt struct {
	*fake
	wrap func(backend.Grant) backend.Grant
}

func (s *spoilt) TryAcquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	g, err := s.fake.TryAcquire(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.wrap(g), nil
}

type spoiltGrant struct {
	backend.Grant
	renew   func(ctx context.Context, ttl time.Duration, g backend.Grant) error
	release func(ctx context.Context, g backend.Grant) error
}

func (g *spoiltGrant) Renew(ctx context.Context, ttl time.Duration) error {
	if g.renew != nil {
		return g.renew(ctx, ttl, g.Grant)
	}
	return g.Grant.Renew(ctx, ttl)
}

func (g *spoiltGrant) Release(ctx context.Context) error {
	if g.release != nil {
		return g.release(ctx, g.Grant)
	}
	return g.Grant.Release(ctx)
}

func TestExtendToLessWhoseReplyIsLostGivesNoSecondHolder(t *testing.T) {
	for _, opts := range [][]lock.MutexOption{{lock.WithoutRenewal()}, nil} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			l := mustLock(t, newClient(t, f, lock.WithTTL(30*time.Second)).Mutex("k", opts...))
			f.spoil = func(_ context.Context, op string, n int) (error, bool) {
				if op == "renew" && n == 1 {
					return backend.Uncertain(errNet), true
				}
				return nil, true
			}
			wantErr(t, "Extend", l.Extend(t.Context(), time.Second), lock.ErrUncertain)
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			defer cancel()
			if _, err := newClient(t, f).Mutex("k").Lock(ctx); err == nil && l.Err() == nil {
				t.Fatal("two holders")
			}
		})
	}
}

func TestExtendToLessEndsTheLeaseEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f, lock.WithTTL(30*time.Second), lock.WithoutRenewal()).Mutex("k"))
		start := time.Now()
		if err := l.Extend(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if got := lostAfter(t, l, start); got > time.Second {
			t.Fatalf("ended after %v", got)
		}
		synctest.Wait()
		if f.holder("k") != "" {
			t.Fatal("the lock was not freed when the shorter lease ended")
		}
	})
}

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

func TestReleasedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := newClient(t, newFake(), lock.WithMinHold(time.Minute), lock.WithObserver(&lock.Observer{Released: func(context.Context, lock.Event) { n++ }}))
		l := mustLock(t, c.Mutex("k"))
		_ = l.Unlock(t.Context())
		_ = c.Close(t.Context())
		if n != 1 {
			t.Fatalf("told %d times", n)
		}
	})
}

func TestUnlockThatWasCertainlyNotExecutedDoesNotHideALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f).Mutex("k"))
		f.take("k", "stranger", time.Hour)
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "release" && n == 1 {
				return errNet, false
			}
			return nil, true
		}
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrLost)
	})
}

func TestUnlockWorksUnderADeadContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := &spoilt{fake: f, wrap: func(g backend.Grant) backend.Grant {
			return &spoiltGrant{Grant: g, release: func(ctx context.Context, g backend.Grant) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return g.Release(ctx)
			}}
		}}
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		l := mustLock(t, newClient(t, b).Mutex("k"))
		if err := l.Unlock(dead); err != nil {
			t.Fatal("Unlock:", err)
		}
		c := newClient(t, b)
		mustLock(t, c.Mutex("k"))
		if err := c.Close(dead); err != nil || f.holder("k") != "" {
			t.Fatal("Close:", err, f.holder("k"))
		}
	})
}

func TestCleaningUpLastsAsLongAsTheLongestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f, lock.WithTTL(time.Second)).Mutex("k"))
		if err := l.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		f.spoil = func(context.Context, string, int) (error, bool) {
			if time.Since(start) < 10*time.Second {
				return backend.Uncertain(errNet), false
			}
			return nil, true
		}
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrUncertain)
		time.Sleep(time.Minute)
		if f.holder("k") != "" {
			t.Fatal("nobody went on trying for as long as the service kept the lock")
		}
	})
}

func TestDriverThatIgnoresItsContextHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "release" || op == "renew" && n == 1 {
				time.Sleep(time.Hour)
			}
			return nil, true
		}
		c, err := lock.New(f, lock.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		l := mustLock(t, c.Mutex("k"))
		time.Sleep(ttl / 2) // a renewal hangs
		start := time.Now()
		wantErr(t, "Check behind a renewal that hangs", l.Check(context.Background()), lock.ErrLost)
		if took := time.Since(start); took > ttl {
			t.Fatalf("Check took %v", took)
		}
		mustLock(t, c.Mutex("j"))
		start = time.Now()
		if err := c.Close(t.Context()); err == nil {
			t.Fatal("Close did not say that a lock was not freed")
		}
		if took := time.Since(start); took > 12*time.Second {
			t.Fatalf("Close took %v", took)
		}
		time.Sleep(3 * time.Hour)
	})
}

func TestRenewalsDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var mu sync.Mutex
		in, most := 0, 0
		b := &spoilt{fake: f, wrap: func(g backend.Grant) backend.Grant {
			return &spoiltGrant{Grant: g, renew: func(ctx context.Context, ttl time.Duration, g backend.Grant) error {
				mu.Lock()
				in++
				most = max(most, in)
				mu.Unlock()
				time.Sleep(20 * time.Millisecond) // a request that is on its way is awaited
				mu.Lock()
				in--
				mu.Unlock()
				return g.Renew(ctx, ttl)
			}}
		}}
		c := newClient(t, b, lock.WithTTL(ttl), lock.WithMinHold(time.Minute))
		l := mustLock(t, c.Mutex("k"))
		for range 3 {
			go func() { _ = l.Check(context.Background()) }()
		}
		synctest.Wait()
		time.Sleep(5 * time.Millisecond)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most != 1 {
			t.Fatalf("%d renewals of one grant at once", most)
		}
		time.Sleep(30 * time.Second)
		if f.holder("k") == "" {
			t.Fatal("the minimum hold was cut short")
		}
	})
}

func TestPanicOfAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		boom := func(context.Context, lock.Event) { panic("boom") }
		attempt := func(o *lock.Observer, use func(lock.Mutex)) {
			c := newClient(t, f, lock.WithObserver(o))
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			use(c.Mutex("k"))
		}
		attempt(&lock.Observer{Acquired: boom}, func(m lock.Mutex) { _, _ = m.TryLock(t.Context()) })
		synctest.Wait()
		if f.holder("k") != "" {
			t.Fatal("a panic while the lock was granted left it held")
		}
		attempt(&lock.Observer{Released: boom}, func(m lock.Mutex) {
			l, err := m.TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Unlock(context.Background()) }() // must not wait for the one that panicked
			_ = l.Unlock(context.Background())
		})
	})
}

func TestNestedLeaseEndsByItsOwnUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithReentry())
		outer := mustLock(t, c.Mutex("k"))
		inner, err := c.Mutex("k").Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Err", outer.Err(), lock.ErrReleased)
		wantErr(t, "Check", outer.Check(t.Context()), lock.ErrReleased)
		wantErr(t, "Extend", outer.Extend(t.Context(), time.Minute), lock.ErrReleased)
		wantErr(t, "cause", context.Cause(outer.Context()), lock.ErrReleased)
		if inner.Err() != nil || f.holder("k") == "" {
			t.Fatal("the other lease ended too")
		}
		if err := inner.Unlock(t.Context()); err != nil || f.holder("k") != "" {
			t.Fatal(err, f.holder("k"))
		}
	})
}

func TestNestedLeaseKeepsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFake(), lock.WithReentry())
		a, b := c.Mutex("a"), c.Mutex("b")
		type key struct{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := lock.Do(ctx, a, func(ctx context.Context) error {
			return lock.Do(context.WithValue(ctx, key{}, 1), b, func(ctx context.Context) error {
				return lock.Do(ctx, a, func(ctx context.Context) error {
					if ctx.Value(key{}) == nil {
						t.Error("a value was lost")
					}
					return lock.Do(ctx, b, func(context.Context) error { return nil })
				})
			})
		}); err != nil {
			t.Fatal("a lock two levels up was not found:", err)
		}
	})
}

func TestReentryRacesTheLastUnlock(t *testing.T) {
	c := newClient(t, memlock.New(), lock.WithReentry())
	m := c.Mutex("k")
	for i := range 5000 {
		outer := mustLock(t, m)
		done := make(chan error, 1)
		go func() {
			inner, err := m.TryLock(outer.Context())
			if err != nil {
				done <- nil // the outer one was faster
				return
			}
			if err := inner.Err(); err != nil {
				done <- fmt.Errorf("a lease that is over: %w", err)
				return
			}
			done <- inner.Unlock(context.Background())
		}()
		for range i % 300 { // shifts the two against each other
			_ = m.Name()
		}
		if err := outer.Unlock(context.Background()); err != nil {
			t.Fatal("outer:", err)
		}
		if err := <-done; err != nil && !errors.Is(err, lock.ErrLocked) {
			t.Fatal("inner:", err)
		}
	}
}
