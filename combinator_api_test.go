package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
)

// InOrder locks its parts in the given order, under the given name.
func TestInOrder(t *testing.T) {
	j := &journal{}
	c := newClient(t, newFake(), j.observer())
	m, err := lock.InOrder("both", c.Mutex("z"), c.Mutex("a"))
	if err != nil {
		t.Fatal(err)
	}
	l := mustLock(t, m)
	var parts []string
	for _, p := range l.Parts() {
		parts = append(parts, p.Name())
	}
	if l.Name() != "both" || !slices.Equal(parts, []string{"z", "a"}) {
		t.Errorf("lease %q of %q", l.Name(), parts)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := j.text(), "+z +a -a -z"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for name, parts := range map[string][]lock.Mutex{
		"none": nil, "nil": {nil}, "twice": {c.Mutex("a"), c.Mutex("a")}, "twice, nested": {lock.All(c.Mutex("a"), c.Mutex("b")), c.Mutex("a")},
	} {
		_, err := lock.InOrder("x", parts...)
		wantErr(t, name, err, lock.ErrInvalid)
	}
}

// The context of WithLease has the values of the lease's context. It ends with the lease
// and with the caller's context, with the cause of either.
func TestWithLease(t *testing.T) {
	type key struct{}
	why := errors.New("shutting down")
	for name, c := range map[string]struct {
		end  func(f *fake, l *lock.Lease, cancel context.CancelCauseFunc)
		want error
	}{
		"lost":     {func(f *fake, _ *lock.Lease, _ context.CancelCauseFunc) { f.take("k", "other", time.Hour) }, lock.ErrLost},
		"unlocked": {func(_ *fake, l *lock.Lease, _ context.CancelCauseFunc) { _ = l.Unlock(context.Background()) }, lock.ErrReleased},
		"caller":   {func(_ *fake, _ *lock.Lease, cancel context.CancelCauseFunc) { cancel(why) }, why},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			l, err := newClient(t, f).Mutex("k").TryLock(context.WithValue(t.Context(), key{}, "value"))
			if err != nil {
				t.Fatal(err)
			}
			caller, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ctx, end := lock.WithLease(caller, l)
			defer end()
			if ctx.Err() != nil || ctx.Value(key{}) != "value" {
				t.Errorf("%s: %v, value %v", name, ctx.Err(), ctx.Value(key{}))
			}
			c.end(f, l, cancel)
			<-ctx.Done()
			wantErr(t, name, context.Cause(ctx), c.want)
		})
	}
}

// RestartMinHold makes the minimum hold count again, but not from a nested lease.
func TestRestartMinHold(t *testing.T) {
	for name, want := range map[string]time.Duration{"lease": 90 * time.Second, "nested": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			m := newClient(t, f, lock.WithMinHold(time.Minute), lock.WithReentry()).Mutex("k")
			l, start := mustLock(t, m), time.Now()
			restarted := l
			if name == "nested" {
				nested, err := m.Lock(l.Context())
				if err != nil {
					t.Fatal(err)
				}
				restarted = nested
			}
			time.Sleep(30 * time.Second)
			restarted.RestartMinHold()
			if restarted != l {
				_ = restarted.Unlock(t.Context())
			}
			_ = l.Unlock(t.Context())
			for f.holder("k") != "" {
				time.Sleep(100 * time.Millisecond)
			}
			if held := time.Since(start); held < want || held > want+time.Second {
				t.Errorf("%s: held for %v, want %v", name, held, want)
			}
		})
	}
}
