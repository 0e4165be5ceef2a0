package lock

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
)

// leaseKey is the context key of the innermost lease.
type leaseKey struct{}

// FromContext returns the lease that ctx belongs to, or nil if there is none: ctx is the context
// of a lease, that of a function that Do, elect.Campaign or schedule.Every calls, or derived from
// one of these. Where such contexts are nested, it is the lease of the innermost. The lease may
// have ended. It is that of the caller of Lock, so the function must not unlock it.
//
//	token, ok := lock.FromContext(ctx).Token()
func FromContext(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// leaseContext is the context of a lease, with the lease as its value.
type leaseContext struct {
	context.Context
	lease  *Lease
	waited atomic.Bool // Done was called by another package than context
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c.lease
	}
	return c.Context.Value(key)
}

// Done returns the channel of the lease's context. Nothing shows who waits for a channel, so that
// makes the lease one that is never reported as forgotten. But package context keeps a context
// that is derived from this one reachable, and with it the lease, until it is canceled.
func (c *leaseContext) Done() <-chan struct{} {
	if !c.waited.Load() {
		var pc [1]uintptr
		runtime.Callers(2, pc[:])
		frame, _ := runtime.CallersFrames(pc[:]).Next()
		pins := strings.HasPrefix(frame.Function, "context.")
		c.waited.Store(!pins)
		c.lease.of.waited(pins)
	}
	return c.Context.Done()
}

// WithLease returns a context for work under l. It ends when l ends, with the cause
// ErrLost, ErrReleased or ErrClosed, and when caller ends, with caller's cause. It has
// the values of l.Context(). As with l.Context(), Err looks at the clock, so it returns
// an error as soon as l has expired. Call end when the work is over.
func WithLease(caller context.Context, l *Lease) (_ context.Context, end context.CancelFunc) {
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

// workContext is the context of WithLease. Its Err asks both the lease and the caller's
// context.
type workContext struct {
	context.Context // derived from the lease's context, and ended by the caller's
	l               *Lease
	caller          context.Context
	cancel          context.CancelCauseFunc
}

func (c *workContext) Err() error {
	_ = c.l.Err()
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.follow() // now, so that both contexts end at the same time for fn
	return c.caller.Err()
}

// follow ends the context if the caller's has ended. At the caller's deadline it ends by
// itself, with the error that says so.
func (c *workContext) follow() {
	if err := c.caller.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.cancel(context.Cause(c.caller))
	}
}
