package lock

import (
	"context"
	"sync/atomic"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/buildinfo"
	"github.com/interlock-go/lock/internal/engine"
	"github.com/interlock-go/lock/internal/eventlog"
	"github.com/interlock-go/lock/internal/lazy"
)

// Client makes the locks of one backend and renews their leases. It is safe for
// concurrent use.
type Client struct {
	name    string // of the driver
	cfg     clientConfig
	log     eventlog.Log
	seq     uint64             // numbers the clients of this process
	opened  *core              // nil if opening is set
	opening *lazy.Opener[core] // WithLazyOpen, and the service did not answer at once

	closing  once
	closeErr error // the result of the first Close
}

// core is the part of a client that needs an open backend.
type core struct {
	backend backend.Backend // what the engine uses: the driver and the wrappers around it
	caps    backend.Capabilities
	engine  *engine.Engine
}

var clients atomic.Uint64

// core returns the core, nil before the backend is open.
func (c *Client) core() *core {
	if c.opening != nil {
		return c.opening.Value()
	}
	return c.opened
}

// await returns the core. If the backend is not open yet, it waits for it if wait is set, else
// for the first attempt to open it.
func (c *Client) await(ctx context.Context, wait bool) (*core, error) {
	switch {
	case c.opening == nil:
		return c.opened, nil
	case wait:
		return c.opening.Wait(ctx)
	}
	return c.opening.Try(ctx)
}

// Mutex returns the lock of a name: 1 to backend.MaxName bytes of any value. It sends
// nothing. Lock and TryLock report an invalid name or option.
func (c *Client) Mutex(name string, opts ...MutexOption) Mutex {
	return c.mutex(name, backend.Share{}, opts)
}

func (c *Client) mutex(name string, share backend.Share, opts []MutexOption) *mutex {
	cfg := c.cfg.mutex
	for _, o := range opts {
		o.applyMutex(&cfg)
	}
	m := &mutex{client: c, name: name, share: share}
	if core := c.core(); core != nil {
		m.bound = m.bind(core, &cfg, len(opts) > 0)
	} else {
		m.late = &lateMutex{cfg: cfg}
		m.bound.err = m.check(backend.Capabilities{Name: c.name}, &cfg)
	}
	return m
}

// Capabilities returns what the backend declares to guarantee, less what local hand-off
// gives up. Before a backend that is opened lazily (WithLazyOpen) is open, nothing but the name
// is known, and no guarantee is declared.
func (c *Client) Capabilities() backend.Capabilities {
	if core := c.core(); core != nil {
		return core.caps
	}
	return backend.Capabilities{Name: c.name}
}

// Close ends all waits and leases with ErrClosed, frees what is held, waits for cleanups in
// progress and closes the backend. It returns when ctx ends or after 2 s, whichever is
// later, and after about 10 s at the latest; closing the backend may take 3 s more. What
// is not freed by then expires, and Close returns an error. A second call returns what the
// first returned. Close must not be called from an Observer.
func (c *Client) Close(ctx context.Context) error {
	c.closing.do(func() {
		if c.opening != nil {
			c.stopOpening(ctx)
		}
		if core := c.core(); core != nil {
			c.closeErr = c.wrap("close", "", core.engine.Close(ctx))
		}
	})
	return c.closeErr
}

// wrap adds where an error comes from, once. It returns nil for nil.
func (c *Client) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if wrapped, ok := err.(*Error); ok { //nolint:errorlint // one further down may be about another lock
		return wrapped
	}
	return &Error{Op: op, Backend: c.name, Name: name, Err: err}
}

// Version returns the version of this module in the running program, for example "v0.1.0", or
// "(devel)" if it was built from a work tree.
func Version() string {
	_, version := buildinfo.ModuleOf("github.com/interlock-go/lock")
	return version
}
