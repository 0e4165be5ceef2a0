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
