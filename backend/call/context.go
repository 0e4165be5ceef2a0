package call

import (
	"context"
	"sync"
	"time"
)

// Context ends with another context, at a deadline, and when End is called, whichever is first. It makes a
// channel, a timer and a registration at the other context only when Done or AfterFunc is called. A driver that answers at
// once, or whose client library ends a request at its deadline, calls neither, so the request costs none of them.
//
// It is set up by Init, and End must be called when the request is over. It is safe for concurrent use then.
type Context struct {
	values   context.Context
	until    context.Context
	deadline time.Time // zero: none
	own      bool      // the deadline is not that of until
	detached bool      // values and until differ

	mu    sync.Mutex // guards the fields below
	err   error
	done  chan struct{}
	after map[*func()]struct{}
	stop  func() bool // ends the registration at until
	timer *time.Timer
}

var _ context.Context = (*Context)(nil)

// Init makes c a context with the values of values that ends with until and at deadline, unless that is zero.
// If values and until differ, neither the end of values nor its cause is seen.
func (c *Context) Init(values, until context.Context, deadline time.Time) {
	c.values, c.until, c.detached = values, until, values != until
	c.deadline, c.own = deadline, !deadline.IsZero()
	if d, ok := until.Deadline(); ok && (!c.own || d.Before(deadline)) {
		c.deadline, c.own = d, false
	}
}

// Deadline returns the earlier of both deadlines.
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Value returns a value of the caller's context.
func (c *Context) Value(key any) any {
	if c.detached {
		return context.WithoutCancel(c.values).Value(key)
	}
	return c.values.Value(key)
}

// Err returns context.DeadlineExceeded as soon as the deadline of Init has passed, also if a timer is late.
func (c *Context) Err() error {
	ended := c.until.Err()
	if ended == nil && c.own && !time.Now().Before(c.deadline) {
		ended = context.DeadlineExceeded
	}
	if ended != nil {
		c.End(ended)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done is closed when the context ends.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
		c.watchLocked()
	}
	return c.done
}

// AfterFunc is for package context only, whose f does not block. Without this method it would start a goroutine for
// each context that is derived from c.
func (c *Context) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.watchLocked()
	if c.after == nil {
		c.after = map[*func()]struct{}{}
	}
	c.after[&f] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waits := c.after[&f]
		delete(c.after, &f)
		return waits
	}
}

// watchLocked arranges that c ends by itself.
func (c *Context) watchLocked() {
	if c.err != nil || c.stop != nil {
		return
	}
	c.stop = func() bool { return true }
	if c.until.Done() != nil {
		c.stop = context.AfterFunc(c.until, func() { c.End(c.until.Err()) })
	}
	if c.own {
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.End(context.DeadlineExceeded) })
	}
}

// End ends c with err. It does nothing if c has ended.
func (c *Context) End(err error) {
	for f := range c.end(err) {
		(*f)()
	}
}

// end returns what is to be called at the end, without the mutex.
func (c *Context) end(err error) (after map[*func()]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	if c.stop != nil {
		c.stop()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	after, c.after = c.after, nil
	return after
}
