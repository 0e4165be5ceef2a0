package lock

import (
	"context"
	"errors"
	"time"
)

// Events go to the log and to the observers from here only. Each costs a nil check
// when neither is set.

// tell tells all observers, also if one of them panics.
func tell(ctx context.Context, observers []*Observer, kind func(*Observer) func(context.Context, Event), e Event) {
	if len(observers) == 0 {
		return
	}
	defer tell(ctx, observers[1:], kind, e)
	if f := kind(observers[0]); f != nil {
		f(ctx, e)
	}
}

func onWaiting(o *Observer) func(context.Context, Event)     { return o.Waiting }
func onAcquired(o *Observer) func(context.Context, Event)    { return o.Acquired }
func onFailed(o *Observer) func(context.Context, Event)      { return o.Failed }
func onReleased(o *Observer) func(context.Context, Event)    { return o.Released }
func onRenewFailed(o *Observer) func(context.Context, Event) { return o.RenewFailed }
func onLost(o *Observer) func(context.Context, Event)        { return o.Lost }

// waits notes who holds the lock, and tells the first time. Nothing is told of
// a call that has been told to be over.
func (a *attempt) waits(locked *LockedError) {
	a.mu.Lock()
	first := a.locked == nil && !a.over
	a.locked = locked
	a.mu.Unlock()
	if !first {
		return
	}
	c, name := a.m.client, a.m.name
	if os := c.cfg.observers; os != nil {
		tell(a.values, os, onWaiting, Event{Backend: c.caps.Name, Name: name, Wait: time.Since(a.start), Err: locked})
	}
	if c.cfg.log != nil {
		c.cfg.log.DebugContext(a.values, "waiting for lock", "name", name, "backend", c.caps.Name, "holder", locked.Error())
	}
}

// settle ends what waits may tell. It reports whether this call of it was the
// first, and whether waits had told anything.
func (a *attempt) settle() (first, waited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, a.over = !a.over, true
	return first, a.locked != nil
}

func (a *attempt) acquired(h *hold, wait time.Duration) {
	_, waited := a.settle()
	c := h.client
	if os := c.cfg.observers; os != nil {
		e := h.event(nil)
		e.Wait, e.Waited = wait, waited
		tell(a.values, os, onAcquired, e)
	}
	if c.cfg.log != nil {
		c.cfg.log.DebugContext(a.values, "lock acquired", "name", h.req.Key, "backend", c.caps.Name, "token", h.grant.Token(), "wait", wait)
	}
}

// failed tells of a call's failure, unless its success has been told.
func (a *attempt) failed(err error) {
	first, waited := a.settle()
	if !first {
		return
	}
	c, name := a.m.client, a.m.name
	if os := c.cfg.observers; os != nil {
		tell(a.values, os, onFailed, Event{Backend: c.caps.Name, Name: name, Wait: time.Since(a.start), Waited: waited, Err: err})
	}
	if c.cfg.log != nil {
		c.cfg.log.DebugContext(a.values, "lock not acquired", "name", name, "backend", c.caps.Name, "wait", time.Since(a.start), "err", err)
	}
}

// errPanicked is what observers are told of a call that a panic has ended.
var errPanicked = errors.New("the backend or an observer panicked")

func (c *Client) released(ctx context.Context, h *hold, err error) {
	c.ended(ctx, h, onReleased, err)
	if c.cfg.log != nil {
		c.cfg.log.DebugContext(ctx, "lock released", "name", h.req.Key, "backend", c.caps.Name, "token", h.grant.Token(), "held", time.Since(h.acquired), "err", err)
	}
}

func (c *Client) lost(h *hold, err error) {
	c.ended(h.values(), h, onLost, err)
	if c.cfg.log != nil {
		c.cfg.log.WarnContext(h.values(), "lock lost", "name", h.req.Key, "backend", c.caps.Name, "token", h.grant.Token(), "held", time.Since(h.acquired), "err", err)
	}
}

// ended tells that a hold is over, but not before its grant has been told: the lock
// may be lost, or the client closed, in between.
func (c *Client) ended(ctx context.Context, h *hold, kind func(*Observer) func(context.Context, Event), err error) {
	if c.cfg.observers == nil {
		return
	}
	e := h.event(err)
	h.mu.Lock()
	told := h.told
	if !told {
		h.untold = func() { tell(ctx, c.cfg.observers, kind, e) }
	}
	h.mu.Unlock()
	if told {
		tell(ctx, c.cfg.observers, kind, e)
	}
}

// grantTold lets the hold's end be told, now if it has come already.
func (h *hold) grantTold() {
	h.mu.Lock()
	h.told = true
	untold := h.untold
	h.mu.Unlock()
	if untold != nil {
		untold()
	}
}

func (c *Client) renewFailed(h *hold, err error) {
	if os := c.cfg.observers; os != nil {
		tell(h.values(), os, onRenewFailed, h.event(err))
	}
	if c.cfg.log != nil {
		c.cfg.log.InfoContext(h.values(), "lock renewal failed, will try again", "name", h.req.Key, "backend", c.caps.Name, "token", h.grant.Token(), "err", err)
	}
}

// notice logs that a part of the service fails, or serves again.
func (c *Client) notice(what string, err error) {
	switch {
	case c.cfg.log == nil:
	case err != nil:
		c.cfg.log.Warn("lock: "+what, "backend", c.caps.Name, "err", err)
	default:
		c.cfg.log.Info("lock: "+what, "backend", c.caps.Name)
	}
}

// warn logs a failure of something that nobody waits for.
func (c *Client) warn(what, name string, err error) {
	if c.cfg.log != nil {
		c.cfg.log.Warn("lock: "+what+" failed", "name", name, "backend", c.caps.Name, "err", err)
	}
}

// values is a context with the values of the hold's first lease.
func (h *hold) values() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &h.leases[0].ctx
}

func (h *hold) event(err error) Event {
	return Event{
		Backend: h.client.caps.Name,
		Name:    h.req.Key,
		Owner:   h.req.Owner,
		Token:   h.grant.Token(),
		Held:    time.Since(h.acquired),
		Err:     err,
	}
}
