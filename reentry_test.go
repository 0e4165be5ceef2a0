package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
)

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

func TestReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithReentry())
		m := c.Mutex("k")
		outer := mustLock(t, m)
		inner, err := m.Lock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, _ := outer.Token()
		if b, ok := inner.Token(); !ok || a != b {
			t.Fatalf("tokens %d and %d of one hold", a, b)
		}
		if err := inner.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := inner.Unlock(t.Context()); err != nil {
			t.Fatal("second unlock of the inner lease:", err)
		}
		if outer.Err() != nil || f.holder("k") == "" {
			t.Fatal("the inner Unlock freed the lock")
		}
		again, err := m.TryLock(outer.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.holder("k") == "" || again.Err() != nil {
			t.Fatal("the lock was freed while a nested lease was held")
		}
		if err := again.Unlock(t.Context()); err != nil || f.holder("k") != "" {
			t.Fatalf("the last Unlock did not free the lock: %v", err)
		}

		strict := newClient(t, f).Mutex("k")
		l := mustLock(t, strict)
		_, err = strict.Lock(l.Context())
		wantErr(t, "Lock that would wait for itself", err, lock.ErrLocked)
		if _, err = c.Mutex("j").Lock(l.Context()); err != nil {
			t.Fatal("another name under a lease's context:", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		after, err := strict.TryLock(context.WithoutCancel(l.Context()))
		if err != nil {
			t.Fatal("Lock under the detached context of a lease that was unlocked:", err)
		}
		if err := after.Unlock(t.Context()); err != nil {
			t.Fatal(err)
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

		err = lock.Do(t.Context(), c.Mutex("another"), func(ctx context.Context) error {
			f.take("another", "other", time.Hour)
			<-ctx.Done()
			return fmt.Errorf("ship: %w", context.Cause(ctx))
		})
		wantErr(t, "fn that returns why its context ended", err, lock.ErrLost)
		if n := strings.Count(err.Error(), lock.ErrLost.Error()); n != 1 || !strings.HasPrefix(err.Error(), "ship: ") {
			t.Errorf("the loss is %d times in %q, want once, in the error of fn", n, err)
		}
	})
}
