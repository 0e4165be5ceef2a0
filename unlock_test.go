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
			t.Fatal("nobody went on trying to free the lock")
		}
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

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl), lock.WithReentry())
		m := c.Mutex("k")
		own := errors.New("own")

		wantErr(t, "fn's error", lock.Do(t.Context(), m, func(context.Context) error { return own }), own)
		if err := lock.Do(t.Context(), m, func(ctx context.Context) error {
			return lock.Do(ctx, m, func(context.Context) error { return nil }) // reentry through Do
		}); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = lock.Do(t.Context(), m, func(context.Context) error { panic("boom") })
		}()
		if f.holder("k") != "" {
			t.Fatal("a panic in fn left the lock held")
		}

		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := lock.Do(caller, m, func(ctx context.Context) error {
			if d, ok := ctx.Deadline(); !ok || time.Until(d) != time.Second {
				t.Error("fn does not see its caller's deadline")
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		wantErr(t, "the caller's end", err, context.DeadlineExceeded)
		if f.holder("k") != "" {
			t.Fatal("the caller's end left the lock held")
		}

		err = lock.Do(t.Context(), m, func(ctx context.Context) error {
			f.take("k", "other", time.Hour)
			<-ctx.Done()
			wantErr(t, "cause of fn's context", context.Cause(ctx), lock.ErrLost)
			return nil
		})
		wantErr(t, "Do whose lock was lost though fn returned nil", err, lock.ErrLost)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		f.take("theirs", "other", time.Hour)
		var leases []*lock.Lease
		for _, name := range []string{"a", "b", "c"} {
			leases = append(leases, mustLock(t, c.Mutex(name)))
		}
		waited := make(chan error)
		go func() {
			_, err := c.Mutex("theirs").Lock(context.Background())
			waited <- err
		}()
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a wait that closing ended", <-waited, lock.ErrClosed)
		for _, l := range leases {
			wantErr(t, "a lease of a closed client", l.Err(), lock.ErrClosed)
			wantErr(t, "its Unlock", l.Unlock(t.Context()), lock.ErrClosed)
			if f.holder(l.Name()) != "" {
				t.Fatalf("%s is still held", l.Name())
			}
		}
		if f.holder("theirs") != "other" || f.count("close") != 1 {
			t.Fatal("closing touched what is not ours, or did not close the backend once")
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal("second Close:", err)
		}
		_, err := c.Mutex("k").TryLock(t.Context())
		wantErr(t, "TryLock after Close", err, lock.ErrClosed)
		_, err = c.Inspect(t.Context(), "k")
		wantErr(t, "Inspect after Close", err, lock.ErrClosed)
		wantErr(t, "Ping after Close", c.Ping(t.Context()), lock.ErrClosed)
		for _, err := range c.List(t.Context()) {
			wantErr(t, "List after Close", err, lock.ErrClosed)
		}
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		l := mustLock(t, c.Mutex("k"))
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			<-ctx.Done()
			return backend.Uncertain(ctx.Err()), false
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := c.Close(ctx); err == nil {
			t.Fatal("Close did not say that a lock was not freed")
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("Close took %v", took)
		}
		wantErr(t, "Err", l.Err(), lock.ErrClosed)
	})
}

func TestCloseGivesTheBackendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			select {
			case <-time.After(2 * time.Second): // ending its connections
				return nil, true
			case <-ctx.Done():
				return ctx.Err(), false
			}
		}
		if err := newClient(t, f).Close(context.Background()); err != nil {
			t.Errorf("Close of a backend that takes 2 s: %v", err)
		}
	})
}

// hung answers no question.
type hung struct{ *fake }

func (hung) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hung) Break(ctx context.Context, _ string) (*backend.Holder, error) {
	<-ctx.Done()
	return nil, backend.Uncertain(ctx.Err())
}

func TestCloseEndsQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, hung{newFake()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errs := make(chan error, 2)
		go func() { errs <- c.Ping(ctx) }()
		go func() {
			_, err := c.Break(ctx, "k")
			if !errors.Is(err, lock.ErrUncertain) {
				t.Errorf("Break that was under way: got %v, want it uncertain", err)
			}
			errs <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := c.Close(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		for range 2 {
			wantErr(t, "a question that was under way", <-errs, lock.ErrClosed)
		}
	})
}

func TestWhatABackendLacksIsRefused(t *testing.T) {
	c := newClient(t, newFake())
	_, err := c.Inspect(t.Context(), "k")
	wantErr(t, "Inspect", err, errors.ErrUnsupported)
	_, err = c.Break(t.Context(), "k")
	wantErr(t, "Break", err, errors.ErrUnsupported)
	wantErr(t, "Ping", c.Ping(t.Context()), errors.ErrUnsupported)
	n := 0
	for _, err := range c.List(t.Context()) {
		n++
		wantErr(t, "List", err, errors.ErrUnsupported)
	}
	if n != 1 {
		t.Fatalf("List yielded %d times", n)
	}
	_, err = c.Inspect(t.Context(), "")
	wantErr(t, "Inspect of an empty name", err, lock.ErrInvalid)
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
