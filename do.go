package lock

import (
	"context"
	"errors"
	"fmt"
)

// Do locks m, calls fn and unlocks, also if fn panics. ctx bounds the wait, and its end
// also ends the context of fn. The context of fn has the values of ctx. It ends with the
// cause ErrLost if the lock is lost while fn runs, before another client can be granted
// the lock; fn should then return.
//
// Do returns the error of fn, joined with that of the lock if both failed. If the lock was
// lost before fn returned, the error matches ErrLost even if fn returned nil.
func Do(ctx context.Context, m Mutex, fn func(ctx context.Context) error) (err error) {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		switch unlockErr := l.Unlock(ctx); {
		case unlockErr == nil:
		case err == nil:
			err = unlockErr
		default:
			err = fmt.Errorf("%w; %w", err, unlockErr)
		}
	}()
	inner, end := WithLease(ctx, l)
	defer end()
	return fn(inner)
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
