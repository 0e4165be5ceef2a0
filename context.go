package lock

import (
	"context"
	"errors"
)

// leaseContext ends with its lease. Its Err looks at the clock itself, so that
// a process that was stopped past the lease finds it over at its first check,
// before any timer had a chance to run.
type leaseContext struct {
	context.Context // ended by the lease, with the lease's error as its cause
	l               *Lease
}

func (c *leaseContext) Err() error {
	_ = c.l.Err() // an expired hold cancels the embedded context before it is asked
	return c.Context.Err()
}

func (c *leaseContext) Value(key any) any {
	if k, ok := key.(holdKey); ok {
		if h := c.l.of.find(k); h != nil {
			return h
		}
	}
	return c.Context.Value(key)
}

// holdKey finds the hold of a name among a context's ancestors, for reentry.
type holdKey struct {
	client *Client
	name   string
}

// detached ends with its Context and has the values of another that may end before.
type detached struct {
	context.Context
	values context.Context // without cancellation
}

// detach gives until the values of from.
func detach(from, until context.Context) context.Context {
	return detached{until, context.WithoutCancel(from)}
}

func (d detached) Value(key any) any {
	if v := d.values.Value(key); v != nil {
		return v
	}
	return d.Context.Value(key)
}

// doContext is that of a function run by Do: it ends with the lease and with the
// caller's context, whichever is first, and both are asked by its Err.
type doContext struct {
	context.Context // derived from the lease's context, and ended by the caller's
	l               *Lease
	caller          context.Context
	cancel          context.CancelCauseFunc
}

func (c *doContext) Err() error {
	_ = c.l.Err()
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.follow() // here, so that nobody sees one ended and the other not
	return c.caller.Err()
}

// follow ends the context if the caller's has ended. At the caller's deadline it
// ends by itself, with the error that says so.
func (c *doContext) follow() {
	if err := c.caller.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.cancel(context.Cause(c.caller))
	}
}

func newDoContext(caller context.Context, l *Lease) (ctx *doContext, end func()) {
	inner, cancel := context.WithCancelCause(l.Context())
	undo := func() {}
	if d, ok := caller.Deadline(); ok {
		inner, undo = context.WithDeadline(inner, d)
	}
	ctx = &doContext{Context: inner, l: l, caller: caller, cancel: cancel}
	stop := context.AfterFunc(caller, ctx.follow)
	return ctx, func() {
		stop()
		undo()
		cancel(nil)
	}
}
