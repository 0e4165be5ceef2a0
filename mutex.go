package lock

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/engine"
	"github.com/interlock-go/lock/internal/retry"
)

// mutex is the Mutex of one key of a client.
type mutex struct {
	client *Client
	name   string
	share  backend.Share
	bound  boundMutex
	late   *lateMutex // if the backend was not open when the mutex was made; then bound has only an error
}

// boundMutex is what a mutex uses of an open backend.
type boundMutex struct {
	engine *engine.Mutex
	err    error // why it can never be locked
}

// lateMutex is the part of a mutex that was made before the backend was open.
type lateMutex struct {
	cfg   mutexConfig
	bound atomic.Pointer[boundMutex] // since the backend is open and the mutex was used
}

// check returns why a mutex can never be locked on a backend.
func (m *mutex) check(caps backend.Capabilities, cfg *mutexConfig) error {
	if err := m.checkName(caps); err != nil {
		return err
	}
	return cfg.validate(caps)
}

// checkName returns why the name or the share of m can never be locked on a backend.
func (m *mutex) checkName(caps backend.Capabilities) error {
	err := cmp.Or(validName(m.name, caps), m.share.Validate())
	if err == nil && caps.Scope != 0 { // else the backend is not open yet
		err = caps.CheckShare(m.share)
	}
	return err
}

// bind returns what m uses of core. The options of the client are valid.
func (m *mutex) bind(core *core, cfg *mutexConfig, ownOptions bool) boundMutex {
	b := boundMutex{engine: core.engine.Mutex(engine.Params{
		Key: m.name, Share: m.share, Metadata: cfg.metadata, TTL: cfg.ttl, MinHold: cfg.minHold, Wait: cfg.wait, Fixed: cfg.noRenewal, Reentrant: cfg.reentry,
	})}
	if ownOptions {
		b.err = m.check(core.caps, cfg)
	} else {
		b.err = m.checkName(core.caps)
	}
	return b
}

// await returns what m uses of the backend, when that is open.
func (m *mutex) await(ctx context.Context, wait bool) (*boundMutex, error) {
	if m.late == nil || m.bound.err != nil {
		return &m.bound, m.bound.err
	}
	b := m.late.bound.Load()
	if b == nil {
		core, err := m.client.await(ctx, wait)
		if err != nil {
			return nil, err
		}
		bound := m.bind(core, &m.late.cfg, true)
		b = &bound
		m.late.bound.Store(b)
	}
	return b, b.err
}

func (m *mutex) Name() string { return m.name }

func (m *mutex) Lock(ctx context.Context) (*Lease, error)    { return m.acquire(ctx, "lock", true) }
func (m *mutex) TryLock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, "try", false) }

func (m *mutex) acquire(ctx context.Context, op string, wait bool) (*Lease, error) {
	start := time.Now()
	if m.late != nil && wait && m.late.cfg.wait > 0 { // the limit is for the backend and for the lock
		var cancel context.CancelFunc
		ctx, cancel = retry.WithWaitLimit(ctx, m.late.cfg.wait)
		defer cancel()
	}
	bound, err := m.await(ctx, wait)
	if err != nil {
		m.client.report(ctx, engine.Event{Kind: engine.Failed, Op: op, Key: m.name, Share: m.share, Wait: time.Since(start), Err: err})
		return nil, m.client.wrap(op, m.name, err)
	}
	held, err := bound.engine.Acquire(ctx, op, wait, start)
	if err != nil {
		return nil, m.client.wrap(op, m.name, err)
	}
	l := &Lease{single: singleLease{Lease: held, client: m.client}}
	l.of = &l.single
	l.single.ctx.Context, l.single.ctx.lease = held.Context(), l
	m.client.watch(l, held)
	return l, nil
}

// Inspect is Client.Inspect, for packages elect and migrate.
func (m *mutex) Inspect(ctx context.Context) (Info, error) {
	if m.bound.err != nil {
		return Info{}, m.client.wrap("inspect", m.name, m.bound.err)
	}
	return m.client.Inspect(ctx, m.name)
}

// WatchChanges is Client.WatchChanges, for package elect.
func (m *mutex) WatchChanges(ctx context.Context, changed func()) error {
	return m.client.WatchChanges(ctx, m.name, changed)
}

// clientLock is a lock of a Client.
type clientLock interface{ lock() *mutex }

func (m *mutex) lock() *mutex { return m }
