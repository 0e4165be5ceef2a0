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
)

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
