package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/cleanup"
	"github.com/interlock-go/lock/internal/engine"
	"github.com/interlock-go/lock/internal/handoff"
	"github.com/interlock-go/lock/internal/lazy"
	"github.com/interlock-go/lock/internal/renewal"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/task"
)

// parseURL parses a URL and returns the options in it.
func parseURL(url string) (*backend.URL, []Option, error) {
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil, nil, &Error{Op: "open", Err: err}
	}
	var opts []Option
	if ttl := u.Params.Duration("ttl", 0); ttl != 0 {
		opts = append(opts, WithTTL(ttl))
	}
	if wait := u.Params.Duration("wait", 0); wait != 0 {
		opts = append(opts, WithWait(wait))
	}
	if !u.Params.Bool("renew", true) {
		opts = append(opts, WithoutRenewal())
	}
	if u.Params.Bool("local_hand_off", false) {
		opts = append(opts, WithLocalHandOff())
	}
	if u.Params.Bool("lazy", false) {
		opts = append(opts, WithLazyOpen())
	}
	return u, opts, nil
}

// New returns a client of a backend. Closing the client closes b. If New returns an error,
// the caller closes b.
func New(b backend.Backend, opts ...Option) (*Client, error) {
	c := newClient(opts)
	var err error
	if c.opened, err = c.newCore(b); err != nil {
		return nil, err
	}
	return c, nil
}

func newClient(opts []Option) *Client {
	c := &Client{cfg: clientConfig{mutex: defaultMutexConfig()}, seq: clients.Add(1)}
	for _, o := range opts {
		o.applyClient(&c.cfg)
	}
	c.log.Logger, c.log.Default = c.cfg.log, !c.cfg.logGiven
	return c
}

// openOver makes c the client of b, or closes b.
func (c *Client) openOver(ctx context.Context, b backend.Backend) (_ *Client, err error) {
	if c.opened, err = c.newCore(b); err != nil {
		_ = b.Close(ctx) // nothing is held yet, and err is the error that matters
		return nil, err
	}
	return c, nil
}

// newCore returns the core of c over b, which the caller closes if it fails.
func (c *Client) newCore(b backend.Backend) (*core, error) {
	r := &core{backend: b, caps: b.Capabilities()}
	r.caps.MaxTTL = maxTTL(r.caps)
	if c.opening == nil {
		c.setName(r.caps.Name)
	}
	tasks := task.New()
	r.backend = renewal.Wrap(b, r.caps.Name, tasks)
	cleaner := &cleanup.Cleaner{Tasks: tasks, Backend: r.backend, Caps: r.caps, Failed: c.log.Failed}
	if c.cfg.handOff {
		h, err := handoff.New(r.backend, r.caps, cleaner)
		if err != nil {
			return nil, c.wrap("open", "", err)
		}
		r.backend, r.caps = h, h.Capabilities()
		cleaner.Backend = h
	}
	for _, req := range c.cfg.require {
		if !req.Met(r.caps) {
			return nil, c.wrap("open", "", fmt.Errorf("required %s: %w by backend %s", req.Name, errors.ErrUnsupported, r.caps.Name))
		}
	}
	if err := c.cfg.mutex.validate(r.caps); err != nil {
		return nil, c.wrap("open", "", err)
	}
	cfg := engine.Config{
		Backend: r.backend, Caps: r.caps, Cleaner: cleaner,
		EndErr: func(key string, cause error) error { return c.wrap("hold", key, cause) },
	}
	if c.reports() {
		cfg.Report = c.report
	}
	if c.log.Warns() {
		cfg.Outage = c.log.Outage
	}
	r.engine = engine.New(cfg)
	if s, ok := backend.As[backend.StatusReporter](b); ok {
		s.ReportStatus(c.log.Status)
	}
	return r, nil
}

// setName sets the name of the driver.
func (c *Client) setName(name string) { c.name, c.log.Backend = name, name }

// driverNames are the names of drivers that differ from the scheme of the URL.
var driverNames = map[string]string{
	"rediss": "redis", "redis+sentinel": "redis", "redis+cluster": "redis",
	"etcds": "etcd", "zk": "zookeeper", "postgresql": "postgres", "mariadb": "mysql",
}

// openLazily opens in the background what needs the service, and returns what can be known
// without it: errors of the URL and of options. A driver checks its parameters before it
// connects, which it cannot do under a context that has ended.
func (c *Client) openLazily(ctx context.Context, u *backend.URL, url string) (*Client, error) {
	if ctx.Err() != nil {
		return nil, &Error{Op: "open", Backend: u.Scheme, Err: retry.ContextError(ctx)}
	}
	ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	b, err := backend.Open(ended, u)
	if err == nil {
		return c.openOver(ctx, b) // it needs no service
	}
	if !retry.Transient(err) {
		return nil, &Error{Op: "open", Backend: u.Scheme, Err: err}
	}
	c.setName(cmp.Or(driverNames[u.Scheme], u.Scheme))
	if err := c.cfg.mutex.validate(backend.Capabilities{Name: c.name}); err != nil {
		return nil, c.wrap("open", "", err)
	}
	started := make(chan struct{})
	c.opening = lazy.Start(func(ctx context.Context) (*core, error) {
		<-started // c.opening is set
		u, _, err := parseURL(url)
		if err != nil {
			return nil, err
		}
		b, err := backend.Open(ctx, u)
		if err != nil {
			return nil, err
		}
		r, err := c.newCore(b)
		var wrapped *Error
		if errors.As(err, &wrapped) { // the operation of the caller is added later
			_ = b.Close(ctx) // nothing is held yet, and err is the error that matters
			return nil, wrapped.Err
		}
		return r, nil
	}, c.log.Opening, func(r *core) { _ = r.engine.Close(context.Background()) })
	close(started)
	return c, nil
}

// stopTimeout bounds how long Close waits for an attempt to open the backend.
const stopTimeout = 2 * time.Second

func (c *Client) stopOpening(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	c.opening.Stop(ctx)
}
