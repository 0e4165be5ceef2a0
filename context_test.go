package lock_test

import (
	"context"
	"testing"
	"testing/synctest"

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
