// Package work makes the context for work under a lease, for the packages of this module that call a function of the
// program while they hold a lock.
package work

import (
	"context"
	"errors"
	"time"
)

// Lease is what this package uses of a lease. Its context has a value for MinHoldKey.
type Lease interface {
	Context() context.Context
	Err() error
}

// MinHoldKey is the context key of the minimum hold of a lease, a MinHold.
type MinHoldKey struct{}

// MinHold is the minimum hold of a lease.
type MinHold interface {
	SetMinHoldStart(t time.Time) // does nothing for a nested lease
}

// RestartMinHold makes the minimum hold of the lease that ctx belongs to count from now instead of from the grant. It does
// nothing for a lease that is nested in another.
func RestartMinHold(ctx context.Context) {
	if m, ok := ctx.Value(MinHoldKey{}).(MinHold); ok {
		m.SetMinHoldStart(time.Now())
	}
}

// WithLease returns a context for work under l. It ends when l ends, with the cause of l, and when caller ends, with
// caller's cause. It has the values of l.Context(). As with l.Context(), Err looks at the clock, so it returns an error as
// soon as l has expired. Call end when the work is over.
func WithLease(caller context.Context, l Lease) (_ context.Context, end context.CancelFunc) {
	inner, cancel := context.WithCancelCause(l.Context())
	cancelDeadline := func() {}
	if d, ok := caller.Deadline(); ok {
		inner, cancelDeadline = context.WithDeadline(inner, d)
	}
	ctx := &workContext{Context: inner, l: l, caller: caller, cancel: cancel}
	stop := context.AfterFunc(caller, ctx.follow)
	return ctx, func() {
		stop()
		cancelDeadline()
		cancel(nil)
	}
}

// workContext is the context of WithLease. Its Err asks both the lease and the caller's context.
type workContext struct {
	context.Context // derived from the lease's context, and ended by the caller's
	l               Lease
	caller          context.Context
	cancel          context.CancelCauseFunc
}

func (c *workContext) Err() error {
	_ = c.l.Err()
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.follow() // now, so that both contexts end at the same time for the work
	return c.caller.Err()
}

// follow ends the context if the caller's has ended. At the caller's deadline it ends by
// itself, with the error that says so.
func (c *workContext) follow() {
	if err := c.caller.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.cancel(context.Cause(c.caller))
	}
}
