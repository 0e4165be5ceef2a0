package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/cleanup"
	"github.com/interlock-go/lock/internal/engine"
	"github.com/interlock-go/lock/internal/handoff"
	"github.com/interlock-go/lock/internal/renewal"
	"github.com/interlock-go/lock/internal/task"
)

// Client makes the locks of one backend and renews their leases. It is safe for
// concurrent use.
type Client struct {
	backend backend.Backend // what the engine uses: the driver and the wrappers around it
	caps    backend.Capabilities
	cfg     clientConfig
	seq     uint64 // numbers the clients of this process
	engine  *engine.Engine

	closing   atomic.Bool
	closeDone chan struct{} // closed when the first Close has returned
	closeErr  error         // its result
}

var clients atomic.Uint64

// Open opens the backend that a URL names. Its driver must have been imported:
//
//	mem://shared                          goroutines of one process
//	file:///var/lib/app/locks             processes of one machine
//	redis://user:password@host:6379/0     all clients of the server
//
// Besides the parameters of the driver every URL accepts ttl (as WithTTL), renew=false (as
// WithoutRenewal) and local_hand_off=true (as WithLocalHandOff). Options given in code
// override them. Open fails within a bounded time if the service does not answer. ctx
// bounds opening only.
func Open(ctx context.Context, url string, opts ...Option) (*Client, error) {
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	var fromURL []Option
	if ttl := u.Params.Duration("ttl", 0); ttl != 0 {
		fromURL = append(fromURL, WithTTL(ttl))
	}
	if !u.Params.Bool("renew", true) {
		fromURL = append(fromURL, WithoutRenewal())
	}
	if u.Params.Bool("local_hand_off", false) {
		fromURL = append(fromURL, WithLocalHandOff())
	}
	b, err := backend.Open(ctx, u)
	if err != nil {
		return nil, &Error{Op: "open", Backend: u.Scheme, Err: err}
	}
	c, err := New(b, append(fromURL, opts...)...)
	if err != nil {
		_ = b.Close(ctx) // nothing is held yet, and err is the error that matters
		return nil, err
	}
	return c, nil
}

// New returns a client of a backend. Closing the client closes b. If New returns an error,
// the caller closes b.
func New(b backend.Backend, opts ...Option) (*Client, error) {
	c := &Client{
		caps: b.Capabilities(), cfg: clientConfig{mutex: defaultMutexConfig()},
		seq: clients.Add(1), closeDone: make(chan struct{}),
	}
	for _, o := range opts {
		o.applyClient(&c.cfg)
	}
	tasks := task.New()
	cleaner := &cleanup.Cleaner{Tasks: tasks, Caps: c.caps, Failed: c.warn}
	c.backend = renewal.Wrap(b, c.caps.Name, tasks)
	if c.cfg.handOff {
		h, err := handoff.New(c.backend, c.caps, cleaner)
		if err != nil {
			return nil, c.wrap("open", "", err)
		}
		c.backend, c.caps = h, h.Capabilities()
	}
	for _, r := range c.cfg.require {
		if !r.Met(c.caps) {
			return nil, c.wrap("open", "", fmt.Errorf("required %s: %w by backend %s", r.Name, errors.ErrUnsupported, c.caps.Name))
		}
	}
	if err := c.cfg.mutex.validate(c.caps); err != nil {
		return nil, c.wrap("open", "", err)
	}
	cfg := engine.Config{
		Backend: c.backend, Caps: c.caps, Tasks: tasks, Cleaner: cleaner,
		EndErr: func(key string, cause error) error { return c.wrap("hold", key, cause) },
	}
	if len(c.cfg.observers) > 0 || c.cfg.log != nil {
		cfg.Report = c.report
	}
	c.engine = engine.New(cfg)
	if r, ok := backend.As[backend.StatusReporter](b); ok {
		r.ReportStatus(c.status)
	}
	return c, nil
}

// Mutex returns the lock of a name: 1 to backend.MaxName bytes of any value. It sends
// nothing. Lock and TryLock report an invalid name or option.
func (c *Client) Mutex(name string, opts ...MutexOption) Mutex {
	cfg := c.cfg.mutex
	for _, o := range opts {
		o.applyMutex(&cfg)
	}
	m := &mutex{client: c, name: name, engine: c.engine.Mutex(engine.Params{
		Key: name, Metadata: cfg.metadata, TTL: cfg.ttl, MinHold: cfg.minHold, Fixed: cfg.noRenewal, Reentrant: cfg.reentry,
	})}
	if m.err = validName(name, c.caps); m.err == nil && len(opts) > 0 {
		m.err = cfg.validate(c.caps)
	}
	return m
}

// Capabilities returns what the backend declares to guarantee, less what local hand-off
// gives up.
func (c *Client) Capabilities() backend.Capabilities { return c.caps }

// Close ends all waits and leases with ErrClosed, frees what is held, waits for cleanups in
// progress and closes the backend. It returns when ctx ends or after 2 s, whichever is
// later, and after about 10 s at the latest; closing the backend may take 3 s more. What
// is not freed by then expires, and Close returns an error. A second call returns what the
// first returned. Close must not be called from an Observer.
func (c *Client) Close(ctx context.Context) error {
	if c.closing.CompareAndSwap(false, true) {
		defer close(c.closeDone) // also if an observer panics
		c.closeErr = c.wrap("close", "", c.engine.Close(ctx))
		return c.closeErr
	}
	<-c.closeDone
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
	return &Error{Op: op, Backend: c.caps.Name, Name: name, Err: err}
}
