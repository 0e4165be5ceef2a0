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
	Name    string // in reports; unique in a run
	Version string // of the service, "" if unknown
	// Open connects another client, as independent as another process.
	Open func(ctx context.Context) (Client, error)
	// URL is what other processes open, "" for a lock of another library. Scenarios that
	// need other processes or a network fault measure targets with a URL only.
	URL string
	// Operations returns how many operations the server has executed for its clients,
	// without those of counting. It is nil if that is unknown.
	Operations func(ctx context.Context) (int64, error)
	// Written returns how many bytes the server has written to its log, Stored how many
	// rows, keys, nodes or files it keeps. Either is nil if that is unknown.
	Written, Stored func(ctx context.Context) (int64, error)
	// Processor returns the processor time that the server has used. It is nil, or its error matches
	// errors.ErrUnsupported, if that is unknown.
	Processor func(ctx context.Context) (time.Duration, error)
	// Alone targets exclude no other worker, so they are measured where no two workers use one name. A lock is
	// compared with them.
	Alone bool
	// Close closes the resources of the target. It may be nil.
	Close func()
}

// Client acquires locks. It is safe for concurrent use.
type Client interface {
	Lock(ctx context.Context, name string) (Lease, error)
	// Ping makes the fastest possible round trip to the service.
	Ping(ctx context.Context) error
	Close(ctx context.Context) error
}

// Lease is a held lock.
type Lease interface {
	// Token is the fencing token; ok is false if there is none.
	Token() (token uint64, ok bool)
	Unlock(ctx context.Context) error
}

// Interlock returns a target of this library.
func Interlock(name, url string, opts ...lock.Option) Target {
	return Target{Name: name, URL: url, Open: func(ctx context.Context) (Client, error) {
		c, err := lock.Open(ctx, url, append([]lock.Option{lock.WithLogger(nil)}, opts...)...)
		if err != nil {
			return nil, err
		}
		return &client{Client: c}, nil
	}}
}

type client struct {
	*lock.Client
	mutexes sync.Map // by name, as an application keeps them
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

// Waiting returns the number of waiters of a lock.
func (c *client) Waiting(ctx context.Context, name string) (int, error) {
	info, err := c.Inspect(ctx, name)
	return len(info.Waiters), err
}

// Ping does nothing if there is no service.
func (c *client) Ping(ctx context.Context) error {
	if err := c.Client.Ping(ctx); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
