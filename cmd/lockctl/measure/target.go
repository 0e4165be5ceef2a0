package measure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// Target is a lock to measure.
type Target struct {
	Name    string // in reports; no two targets of a run share it
	Version string // of the service, "" if unknown
	// Open connects one more independent client, as another process would be.
	Open func(ctx context.Context) (Client, error)
	// Operations counts what the server has executed for its clients so far, without
	// what counting costs; nil if that is not known.
	Operations func(ctx context.Context) (int64, error)
	// Settle is how long the server may take to count what it has executed.
	Settle time.Duration
	// Alone: it excludes nobody, so only a single worker makes sense. For what a lock
	// is compared with.
	Alone bool
	// Close ends what the target itself has opened; nil for nothing.
	Close func()
}

// Client takes locks. It is safe for concurrent use.
type Client interface {
	Lock(ctx context.Context, name string) (Lease, error)
	// Ping makes the cheapest round trip to the service that the client can make.
	Ping(ctx context.Context) error
	Close(ctx context.Context) error
}

// Lease is a lock that is held.
type Lease interface {
	// Token is the fencing token; ok is false if there is none.
	Token() (token uint64, ok bool)
	Unlock(ctx context.Context) error
}

// Interlock is a target of this library.
func Interlock(name, url string, opts ...lock.Option) Target {
	return Target{Name: name, Open: func(ctx context.Context) (Client, error) {
		c, err := lock.Open(ctx, url, opts...)
		if err != nil {
			return nil, err
		}
		return &client{Client: c}, nil
	}}
}

type client struct {
	*lock.Client
	mutexes sync.Map // by name: an application keeps them too
}

func (c *client) Lock(ctx context.Context, name string) (Lease, error) {
	m, ok := c.mutexes.Load(name)
	if !ok {
		m, _ = c.mutexes.LoadOrStore(name, c.Mutex(name))
	}
	l, err := m.(lock.Mutex).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Ping does not fail where there is no service to ask.
func (c *client) Ping(ctx context.Context) error {
	if err := c.Client.Ping(ctx); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
