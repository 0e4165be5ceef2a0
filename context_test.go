package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
)

func TestFromContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFake(), lock.WithReentry())
		if l := lock.FromContext(t.Context()); l != nil {
			t.Errorf("a context without a lease: %v", l)
		}
		outer := mustLock(t, c.Mutex("outer"))
		both := mustLock(t, lock.All(c.Mutex("x"), c.Mutex("y")))
		for _, l := range []*lock.Lease{outer, both, both.Parts()[0]} {
			derived, cancel := context.WithCancel(l.Context())
			if lock.FromContext(l.Context()) != l || lock.FromContext(derived) != l {
				t.Errorf("%s: the lease of its context is another one", l.Name())
			}
			cancel()
		}
		err := lock.Do(outer.Context(), c.Mutex("inner"), func(ctx context.Context) error {
			if name := lock.FromContext(ctx).Name(); name != "inner" {
				t.Errorf("in Do: the lease of %s", name)
			}
			return lock.Do(ctx, c.Mutex("inner"), func(nested context.Context) error { // by reentry
				if lock.FromContext(nested) == lock.FromContext(ctx) {
					t.Error("a nested Do has the lease of the outer one")
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := outer.Unlock(t.Context()); err != nil || lock.FromContext(outer.Context()) != outer {
			t.Error("an ended lease is not that of its context", err)
		}
	})
}

// returnsCause makes an operation hang until its context ends, and return the cause of the
// context as an unclassified error, as net/http does.
func returnsCause(f *fake, op string) {
	f.spoil = func(ctx context.Context, o string, _ int) (error, bool) {
		if o != op {
			return nil, true
		}
		<-ctx.Done()
		return fmt.Errorf("request: %w", context.Cause(ctx)), true
	}
}

func TestCauseOfAContextIsNoOutcome(t *testing.T) {
	t.Run("TryLock during Close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			returnsCause(f, "acquire")
			c := newClient(t, f)
			result := make(chan error, 1)
			go func() {
				_, err := c.Mutex("k").TryLock(t.Context())
				result <- err
			}()
			synctest.Wait()
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			wantErr(t, "TryLock", <-result, lock.ErrClosed)
			if f.count("abandon") != 1 || f.holder("k") != "" {
				t.Errorf("want the request abandoned, got %d calls of Abandon and the holder %q", f.count("abandon"), f.holder("k"))
			}
		})
	})
	t.Run("TryLock under a lost lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			returnsCause(f, "acquire")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("outer: %w", lock.ErrLost)) })
			_, err := newClient(t, f).Mutex("k").TryLock(ctx)
			wantErr(t, "TryLock", err, context.Canceled)
			if f.count("abandon") != 1 || f.holder("k") != "" {
				t.Errorf("want the request abandoned, got %d calls of Abandon and the holder %q", f.count("abandon"), f.holder("k"))
			}
		})
	})
	t.Run("Check under a lost lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			l := mustLock(t, newClient(t, f).Mutex("k"))
			returnsCause(f, "renew")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("outer: %w", lock.ErrLost)) })
			if err := l.Check(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Check: want Canceled, got %v", err)
			}
			if err := l.Err(); err != nil {
				t.Errorf("the loss of another lease ended this one: %v", err)
			}
		})
	})
}
