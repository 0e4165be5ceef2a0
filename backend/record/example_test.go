package record_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// After an import of this package, lock.Open accepts table://host:port.
func init() { backend.Register("table", open) }

func open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	if err := u.Params.Err(); err != nil {
		return nil, err
	}
	if len(u.Hosts) != 1 {
		return nil, backend.Invalid("URL host", fmt.Sprint(u.Hosts), "one host:port")
	}
	b := New(service)
	if err := b.Ping(ctx); err != nil {
		return nil, fmt.Errorf("table at %s: %w", u.Hosts[0], err)
	}
	return b, nil
}

type Backend struct {
	*record.Locks // TryAcquire, Abandon, Inspect and Break
	*record.Queue // Acquire
	client        *client
	exchanges     record.Exchanges // Close waits for them
}

func New(client *client) *Backend {
	b := &Backend{client: client}
	b.Locks = record.New(store{b}, record.Options{})
	b.Queue = &record.Queue{Locks: b.Locks, Poll: 200 * time.Millisecond, FastPoll: 4 * time.Millisecond}
	return b
}

func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name: "table", Scope: backend.ScopeNetwork, Loss: backend.LossTTL, Order: backend.Unordered,
		Wake: backend.WakePoll, Fencing: backend.FencingMemory, MinTTL: 10 * time.Millisecond, MaxTTL: backend.MaxTTL,
		Caveats: []string{record.CaveatClockRates, backend.CaveatSnapshot},
	}
}

func (b *Backend) Close(ctx context.Context) error { return b.exchanges.Close(ctx) }

func (b *Backend) Ping(ctx context.Context) error {
	return b.exchange(ctx, func() error { _, err := b.client.get("ping"); return err })
}

// exchange makes a request with a library that takes no context. If ctx ends first, the outcome is unknown, and the
// request continues until the timeout of the library.
func (b *Backend) exchange(ctx context.Context, request func() error) error {
	if err := b.exchanges.Begin(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer b.exchanges.End()
		done <- request()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("table: no reply yet: %w", ctx.Err())
	}
}

// store implements record.Store.
type store struct{ *Backend }

func (s store) Read(ctx context.Context, key string) (record.Item, error) {
	var r row // if ctx ends, only the request uses it
	err := s.exchange(ctx, func() (err error) { r, err = s.client.get(key); return err })
	if err != nil || r.version == 0 {
		return record.Item{}, err
	}
	return record.Item{Value: r.value, Version: strconv.Itoa(r.version)}, nil
}

func (s store) Write(ctx context.Context, key string, value []byte, version string, _ time.Duration) (string, error) {
	old := 0 // no row
	if version != "" {
		var err error
		if old, err = strconv.Atoi(version); err != nil {
			return "", backend.NotExecuted(err)
		}
	}
	err := s.exchange(ctx, func() error { return s.client.put(key, value, old) })
	switch {
	case errors.Is(err, errConflict):
		return "", record.ErrChanged
	case err != nil:
		return "", err
	}
	return strconv.Itoa(old + 1), nil
}

// client is the library of a service, which stores a row only if the row has a given version.
type client struct {
	mu   sync.Mutex // guards rows
	rows map[string]row
}

type row struct {
	value   []byte
	version int
}

var (
	service     = &client{rows: map[string]row{}}
	errConflict = errors.New("the row has another version")
)

func (c *client) get(key string) (row, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[key], nil
}

func (c *client) put(key string, value []byte, version int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows[key].version != version {
		return errConflict
	}
	c.rows[key] = row{value, version + 1}
	return nil
}

// A driver for a service with conditional writes.
func Example() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "table://localhost:7000")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := c.Mutex("orders/42")
	l, err := m.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = m.TryLock(ctx)
	fmt.Println(errors.Is(err, lock.ErrLocked))
	fmt.Println(l.Unlock(ctx))
	fmt.Println(c.Close(ctx))
	// Output:
	// true
	// <nil>
	// <nil>
}
