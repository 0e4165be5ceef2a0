package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

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

func TestReleasedIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := newClient(t, newFake(), lock.WithMinHold(time.Minute), lock.WithObserver(&lock.Observer{Released: func(context.Context, lock.Event) { n++ }}))
		l := mustLock(t, c.Mutex("k"))
		_ = l.Unlock(t.Context())
		_ = c.Close(t.Context())
		if n != 1 {
			t.Fatalf("reported %d times", n)
		}
	})
}

// The lock may have been lost before Unlock or after it.
func TestUnlockThatWasCertainlyNotExecutedDoesNotHideALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f).Mutex("k"))
		f.take("k", "stranger", time.Hour)
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "release" && n == 1 {
				return backend.NotExecuted(errNet), false
			}
			return nil, true
		}
		err := l.Unlock(t.Context())
		wantErr(t, "Unlock", err, lock.ErrUncertain)
		wantNot(t, "Unlock", err, lock.ErrLost)
		const text = `lock: unlock "k" on fake: outcome unknown: the lock is not held any more (lock lost) after a failure: connection reset`
		if err.Error() != text {
			t.Errorf("want %s\n got %v", text, err)
		}
	})
}

// A lease that is live when Unlock is called is not lost by an outage that begins then.
func TestUnlockInAnOutage(t *testing.T) {
	refused, unanswered := backend.NotExecuted(errNet), backend.Uncertain(errNet)
	const ttl, late = 2 * time.Second, 0 // late: the second request is executed after the TTL
	for name, o := range map[string]struct {
		err      error
		executed bool          // although it failed
		outage   time.Duration // from Unlock on
		want     error
	}{
		"refused, back at once":              {refused, false, 50 * time.Millisecond, nil},
		"refused, then answered late":        {refused, false, late, nil},
		"refused for longer than Unlock":     {refused, false, time.Minute, lock.ErrUncertain},
		"unanswered, back at once":           {unanswered, false, 50 * time.Millisecond, nil},
		"unanswered, then answered late":     {unanswered, false, late, nil},
		"unanswered for longer than Unlock":  {unanswered, false, time.Minute, lock.ErrUncertain},
		"executed, unanswered, back at once": {unanswered, true, 50 * time.Millisecond, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				l := mustLock(t, newClient(t, f, lock.WithTTL(ttl)).Mutex("k"))
				if err := l.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				f.spoil = func(context.Context, string, int) (error, bool) {
					if time.Since(start) < o.outage || o.outage == late && f.count("release") == 1 {
						return o.err, o.executed
					}
					if o.outage == late {
						time.Sleep(time.Until(start.Add(ttl + 50*time.Millisecond)))
					}
					return nil, true
				}
				err := l.Unlock(t.Context())
				if o.want == nil && err != nil {
					t.Fatalf("Unlock: %v", err)
				}
				if o.want != nil {
					wantErr(t, "Unlock", err, o.want)
				}
				wantNot(t, "Unlock", err, lock.ErrLost)
			})
		})
	}
}

// The reply of the only request comes after the TTL.
func TestUnlockWhoseReplyTakesAsLongAsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f, lock.WithTTL(time.Second), lock.WithoutRenewal()).Mutex("k"))
		f.spoil = func(context.Context, string, int) (error, bool) {
			time.Sleep(200 * time.Millisecond)
			return nil, true
		}
		time.Sleep(850 * time.Millisecond)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatalf("Unlock under a live lease: %v", err)
		}
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
			t.Fatal("the release was not repeated for as long as the service kept the lock")
		}
	})
}

func TestDriverThatIgnoresItsContextDelaysNoUnlock(t *testing.T) {
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
