package lock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func TestUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		l := mustLock(t, c.Mutex("k"))
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "release" && l.Context().Err() == nil {
				t.Error("the holder's context was alive when the release was sent")
			}
			return nil, true
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "cause after Unlock", context.Cause(l.Context()), lock.ErrReleased)
		wantErr(t, "Err after Unlock", l.Err(), lock.ErrReleased)
		wantErr(t, "Check after Unlock", l.Check(t.Context()), lock.ErrReleased)
		wantNot(t, "Err after Unlock", l.Err(), lock.ErrLost)

		next := mustLock(t, c.Mutex("k"))
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal("second Unlock:", err)
		}
		if f.count("release") != 1 || f.holder("k") != next.Owner() {
			t.Fatal("the second Unlock reached the service")
		}
		old, _ := l.Token()
		if cur, _ := next.Token(); cur <= old {
			t.Fatalf("token %d after %d", cur, old)
		}
	})
}

func TestUnlockFromManyGoroutinesAndDuringRenewals(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.spoil = func(context.Context, string, int) (error, bool) {
				time.Sleep(7 * time.Millisecond)
				return nil, true
			}
			l := mustLock(t, newClient(t, f, lock.WithTTL(60*time.Millisecond)).Mutex("k"))
			time.Sleep(50 * time.Millisecond)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := f.count("release"); n != 1 {
				t.Fatalf("%d releases", n)
			}
			n := f.count("renew")
			time.Sleep(time.Second)
			if f.count("renew") != n {
				t.Fatal("renewals after Unlock")
			}
		})
	}
}

func TestRetriedUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "release" && n == 1 {
				// executed, the reply is dropped, and a successor comes at once
				return backend.Uncertain(errNet), true
			}
			if op == "release" && n == 2 {
				f.take("k", "successor", time.Minute)
			}
			return nil, true
		}
		l := mustLock(t, newClient(t, f).Mutex("k"))
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatalf("an unlock whose first reply was dropped: %v", err)
		}
		if f.holder("k") != "successor" {
			t.Fatal("the successor's hold was touched")
		}
	})
}

func TestUnlockOfWhatTheServiceHasTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f).Mutex("k"))
		f.take("k", "successor", time.Minute)
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrLost)
		wantErr(t, "second Unlock", l.Unlock(t.Context()), lock.ErrLost)
		if f.holder("k") != "successor" {
			t.Fatal("the successor's hold was touched")
		}
	})
}

func TestUnlockThatIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := mustLock(t, newClient(t, f).Mutex("k"))
		start := time.Now()
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if time.Since(start) < 9*time.Second {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), false
			}
			return nil, true
		}
		wantErr(t, "Unlock on a hung service", l.Unlock(t.Context()), lock.ErrUncertain)
		if took := time.Since(start); took < 4*time.Second || took > 6*time.Second {
			t.Fatalf("Unlock took %v, want about 5s", took)
		}
		time.Sleep(10 * time.Second)
		if f.holder("k") != "" {
			t.Fatal("the release was not repeated")
		}
	})
}

func (hung) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hung) Break(ctx context.Context, _, _ string) (*backend.Holder, error) {
	<-ctx.Done()
	return nil, backend.Uncertain(ctx.Err())
}

// The request that frees a lock has the values of the context that Unlock was given, and
// none of its end; it ends when Close gives up.
func TestContextOfRelease(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		cancel()

		l := mustLock(t, c.Mutex("a"))
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "release" && (ctx.Value(key{}) != "v" || ctx.Err() != nil) {
				t.Errorf("the context of a release: want the values of Unlock's without its end, got %v, %v", ctx.Value(key{}), ctx.Err())
			}
			return nil, true
		}
		if err := l.Unlock(ctx); err != nil {
			t.Fatal(err)
		}

		l = mustLock(t, c.Mutex("b", lock.WithTTL(8*time.Second)))
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "release" {
				<-ctx.Done()
				return errNet, false
			}
			return nil, true
		}
		begun := time.Now()
		unlocked := make(chan time.Duration, 1)
		go func() {
			_ = l.Unlock(context.Background()) // says that it was not acknowledged
			unlocked <- time.Since(begun)
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		_ = c.Close(ctx) // says that cleaning up was under way
		if took, most := <-unlocked, 3*time.Second; took > most {
			t.Errorf("an Unlock that Close has given up on took %v, want at most %v", took, most)
		}
	})
}

// A request that the network delivers after an outage longer than the TTL acquires the key
// for no holder: it is abandoned then, too.
func TestLateAcquireAfterALongOutage(t *testing.T) {
	const outage = 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.caps.Lateness = time.Minute
		start := time.Now()
		var acknowledged atomic.Int64
		f.spoil = func(context.Context, string, int) (error, bool) {
			if time.Since(start) < outage {
				return backend.Uncertain(errNet), false
			}
			acknowledged.Add(1)
			return nil, true
		}
		m := newClient(t, f, lock.WithTTL(2*time.Second)).Mutex("k")
		_, err := m.TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrUncertain)
		time.Sleep(2 * time.Minute)
		if n := acknowledged.Load(); n != 1 {
			t.Fatalf("the attempt was abandoned %d times after the outage, want once", n)
		}
	})
}

// An outage does not pile up requests that clean up, and all are made up for afterwards.
func TestCleanupsInAnOutageAreBounded(t *testing.T) {
	const most = 16
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.caps.Lateness = time.Minute
		var down atomic.Bool
		var inFlight, highest, acknowledged atomic.Int64
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "abandon" {
				n := inFlight.Add(1)
				defer inFlight.Add(-1)
				for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
				}
			}
			if down.Load() {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), false
			}
			if op == "abandon" {
				acknowledged.Add(1)
			}
			return nil, true
		}
		c := newClient(t, f, lock.WithTTL(5*time.Second))
		down.Store(true)
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := c.Mutex(fmt.Sprint(i)).TryLock(ctx)
				wantErr(t, "TryLock", err, lock.ErrUncertain)
			})
		}
		all.Wait()
		time.Sleep(10 * time.Second)
		if n := highest.Load(); n > most {
			t.Errorf("%d requests at once", n)
		}
		down.Store(false)
		time.Sleep(5 * time.Second)
		if n := acknowledged.Load(); n != 500 {
			t.Errorf("%d of 500 attempts were abandoned", n)
		}
	})
}

// batchAbandoner abandons many attempts in one request.
type batchAbandoner struct{ *fake }

func (b batchAbandoner) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	err := b.do(ctx, "abandon batch", func() error {
		for _, req := range reqs {
			b.free(req)
		}
		b.calls["abandoned"] += len(reqs)
		return nil
	})
	errs := make([]error, len(reqs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// What an outage has left is abandoned in few requests, and little is sent while it lasts. A
// request that was certainly not executed leaves nothing to abandon.
func TestAnOutageIsCleanedUpInBatches(t *testing.T) {
	const attempts = 2000
	for name, failed := range map[string]error{"sent": backend.Uncertain(errNet), "not sent": backend.NotExecuted(errNet)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c := newClient(t, batchAbandoner{f}, lock.WithTTL(20*time.Second))
				f.setSpoil(func(context.Context, string, int) (error, bool) { return failed, false })
				var all sync.WaitGroup
				for i := range attempts {
					all.Go(func() {
						if l, err := c.Mutex(fmt.Sprint(i)).TryLock(t.Context()); err == nil {
							t.Error("granted", l.Name())
						}
					})
				}
				all.Wait()
				time.Sleep(5 * time.Second)
				before := f.count("abandon") + f.count("abandon batch")
				f.setSpoil(nil)
				time.Sleep(time.Second)
				after := f.count("abandon") + f.count("abandon batch") - before
				abandoned := f.count("abandoned") + f.count("abandon")
				t.Logf("%d requests in the outage, %d after it", before, after)
				if !backend.OutcomeUnknown(failed) {
					if before+after > 0 {
						t.Errorf("%d requests to abandon what was not sent", before+after)
					}
				} else if before > 300 || after > 100 || abandoned < attempts {
					t.Errorf("%d attempts: %d requests in an outage of 5 s, %d after it, which abandoned %d", attempts, before, after, abandoned)
				}
			})
		})
	}
}

// Unlock of many locks at a service that does not answer takes as long as that of one.
func TestUnlockOfManyPartsAtAHungService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		var parts []lock.Mutex
		for i := range 60 {
			parts = append(parts, c.Mutex(fmt.Sprint(i)))
		}
		l, err := lock.All(parts...).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "release" {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), false
			}
			return nil, true
		}
		start := time.Now()
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrUncertain)
		if took := time.Since(start); took > 5200*time.Millisecond {
			t.Errorf("Unlock took %v", took)
		}
		f.setSpoil(nil)
	})
}
