package lock

import (
	"context"

	"github.com/interlock-go/lock/internal/engine"
)

// Mutex is a named lock that at most one [Lease] holds at a time, among all clients of
// the same backend. A Mutex has no state, so it may be kept, shared and used by any number
// of goroutines at once.
type Mutex interface {
	// Name returns the name of the lock.
	Name() string

	// Lock waits until the lock is granted and returns the lease. ctx bounds the wait
	// only: a granted lease outlives it.
	//
	// If ctx ends first, Lock returns an error that matches ctx.Err(), and nothing
	// remains on the backend. If the backend does not acknowledge that within a quarter
	// of a second, the error also matches ErrUncertain, and cleaning up goes on in the
	// background until it is acknowledged or the lease has expired.
	Lock(ctx context.Context) (*Lease, error)

	// TryLock makes one attempt. If another client holds the lock or waits for it,
	// TryLock returns an error that matches ErrLocked, with the holder if it is known.
	TryLock(ctx context.Context) (*Lease, error)
}

// An Inspector is a Mutex that can ask its backend for its holder and its waiters. The
// locks of a Client are Inspectors; for a backend that cannot inspect, Inspect returns
// an error that matches errors.ErrUnsupported.
type Inspector interface {
	Mutex
	Inspect(ctx context.Context) (Info, error)
}

// mutex is the Mutex of one key of a client.
type mutex struct {
	client *Client
	name   string
	engine *engine.Mutex
	err    error // why it can never be locked
}

func (m *mutex) Name() string { return m.name }

func (m *mutex) Lock(ctx context.Context) (*Lease, error)    { return m.acquire(ctx, "lock", true) }
func (m *mutex) TryLock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, "try", false) }

func (m *mutex) acquire(ctx context.Context, op string, wait bool) (*Lease, error) {
	if m.err != nil {
		m.client.report(ctx, engine.Event{Kind: engine.Failed, Op: op, Key: m.name, Err: m.err})
		return nil, m.client.wrap(op, m.name, m.err)
	}
	held, err := m.engine.Acquire(ctx, op, wait)
	if err != nil {
		return nil, m.client.wrap(op, m.name, err)
	}
	l := &Lease{single: singleLease{held, m.client}, unlocked: make(chan struct{})}
	l.of = &l.single
	return l, nil
}

// Inspect implements Inspector.
func (m *mutex) Inspect(ctx context.Context) (Info, error) {
	if m.err != nil {
		return Info{}, m.client.wrap("inspect", m.name, m.err)
	}
	return m.client.Inspect(ctx, m.name)
}
