// Package lock is one interface to the distributed locks of many backends.
//
//	c, err := lock.Open(ctx, "redis://localhost:6379/0?ttl=30s")
//	...
//	defer c.Close(context.Background())
//
//	err = lock.Do(ctx, c.Mutex("orders/42"), func(ctx context.Context) error {
//		// at most one process is here at a time; ctx ends if the lock is lost
//		return ship(ctx, 42)
//	}, lock.WithWait(2*time.Second)) // bounds the wait for the lock, not the work
//
// The scheme of the URL chooses the backend. The program imports its driver:
//
//	import _ "github.com/interlock-go/lock/redislock"
//
// If the lock is lost, the context of the work ends before another client can be granted it.
// A process that is stopped does not notice: pass the fencing token ([Lease.Token]) to the
// resource, and let it refuse a lower one than it has seen. [Lease] says what is guaranteed.
//
// [All] locks several locks or none. On top of this package elect elects a leader, schedule
// runs a job on one node at a time and migrate moves a lock to another backend. Each error is
// an [*Error] with a sentinel, the error of the context or that of the backend as its cause;
// none contains a password.
package lock

import (
	"context"
	"fmt"

	"github.com/interlock-go/lock/backend"
)

// Open opens the backend that a URL names. Its driver must have been imported:
//
//	mem://shared                          goroutines of one process
//	file:///var/lib/app/locks             processes of one machine
//	redis://user:password@host:6379/0     all clients of the server
//
// Besides the parameters of the driver every URL accepts ttl (as WithTTL), wait (as WithWait),
// renew=false (as WithoutRenewal), local_hand_off=true (as WithLocalHandOff) and lazy=true (as
// WithLazyOpen). Options given in code override them. Open fails within a bounded time if the
// service does not answer, unless it is opened lazily. ctx bounds opening only.
func Open(ctx context.Context, url string, opts ...Option) (*Client, error) {
	u, fromURL, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	c := newClient(append(fromURL, opts...))
	if c.cfg.lazy {
		return c.openLazily(ctx, u, url)
	}
	b, err := backend.Open(ctx, u)
	if err != nil {
		return nil, &Error{Op: "open", Backend: u.Scheme, Err: err}
	}
	return c.openOver(ctx, b)
}

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

// Share is the part of a lock that a lease holds or waits for: all of it, that of a reader, or
// permits of a semaphore.
type Share = backend.Share

// RWMutex is a lock that many readers or one writer hold at a time. Its writer is the Mutex of
// the same name: they exclude each other. Readers and writers are granted in the order in which
// they came to the backend: a reader that comes after a waiting writer waits for it, so writers
// do not starve, and readers behind each other are granted together.
//
// A reader cannot become a writer: two readers that wait for each other to leave would wait
// without an end. Unlock and Lock, then read again what may have changed; or Lock, and
// Downgrade the lease when the writing is done.
//
// Tokens of readers and writers rise together. A resource refuses a write with a token below
// the greatest that it has seen, and a read with one below that of the last writer (package
// fence).
//
// An RWMutex has no state, as a Mutex. It locks for writing where a Mutex is expected.
type RWMutex struct {
	*mutex
	reader *mutex
}

// RWMutex returns the read/write lock of a name. It sends nothing. If the backend grants no
// read locks (backend.RequireShared), RLock and TryRLock return an error that matches
// errors.ErrUnsupported.
func (c *Client) RWMutex(name string, opts ...MutexOption) *RWMutex {
	return &RWMutex{c.mutex(name, backend.Share{}, opts), c.mutex(name, backend.Reader, opts)}
}

// RLock waits until the lock is granted for reading, as Lock does for writing.
func (rw *RWMutex) RLock(ctx context.Context) (*Lease, error) { return rw.reader.Lock(ctx) }

// TryRLock makes one attempt to lock for reading. If a writer holds the lock or waits for it,
// the error matches ErrLocked.
func (rw *RWMutex) TryRLock(ctx context.Context) (*Lease, error) { return rw.reader.TryLock(ctx) }

// RLocker returns the Mutex of the readers, for Do, All and other functions of a Mutex.
func (rw *RWMutex) RLocker() Mutex { return rw.reader }

// Semaphore is a lock with a number of permits. Acquire takes some of them until its lease
// ends, and a lease that is lost frees its own permits only. Requests are granted in the order
// in which they came to the backend: a large one waits in front of smaller ones that would fit.
// Nothing is configured at the backend: a request brings its capacity n, and is granted if with
// it at most n permits are held, also by requests of another capacity. So a deployment may change
// n while the semaphore is in use. The Mutex of the same name takes all permits, of any capacity;
// its readers and its permits wait for each other.
//
// A Semaphore has no state, as a Mutex.
type Semaphore struct {
	client  *Client
	name    string
	permits int
	opts    []MutexOption
}

// Semaphore returns the semaphore of a name with a number of permits, from 1 to
// backend.MaxPermits. It sends nothing. If the backend grants no permits
// (backend.RequirePermits), Acquire and TryAcquire return an error that matches
// errors.ErrUnsupported.
func (c *Client) Semaphore(name string, permits int, opts ...MutexOption) *Semaphore {
	return &Semaphore{c, name, permits, opts}
}

// Name returns the name of the lock.
func (s *Semaphore) Name() string { return s.name }

// Lock acquires one permit, so that a Semaphore is a Mutex for Do, All and other functions of one.
func (s *Semaphore) Lock(ctx context.Context) (*Lease, error) { return s.Acquire(ctx, 1) }

// TryLock makes one attempt to acquire one permit.
func (s *Semaphore) TryLock(ctx context.Context) (*Lease, error) { return s.TryAcquire(ctx, 1) }

func (s *Semaphore) lock() *mutex { return s.weighted(1) }

// Acquire waits until n permits are granted, as Mutex.Lock does. All n are granted at once. A
// context under a lease of the same semaphore can wait for itself, so it is refused as by Mutex.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	return s.Weighted(n).Lock(ctx)
}

// TryAcquire makes one attempt to acquire n permits. If they are not free, or others wait, the
// error matches ErrLocked.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	return s.Weighted(n).TryLock(ctx)
}

// Weighted returns the Mutex of n permits, from 1 to all, for Do, All and other functions of a
// Mutex. Up to permits/n leases hold it at a time.
func (s *Semaphore) Weighted(n int) Mutex { return s.weighted(n) }

func (s *Semaphore) weighted(n int) *mutex {
	m := s.client.mutex(s.name, backend.Share{Weight: n, Capacity: s.permits}, s.opts)
	if s.permits == 0 { // which is the capacity of a reader
		m.bound.err = backend.Invalid("capacity", 0, fmt.Sprintf("1 to %d permits", backend.MaxPermits))
	}
	return m
}

// Free returns how many of the permits of s are free at the moment: its capacity less the permits that are held, of any
// capacity. It is none while the Mutex of the name, or a reader, holds the lock. Requests that wait are not counted, so
// a TryAcquire of free permits may be refused. It asks the backend once; if that cannot inspect, the error matches
// errors.ErrUnsupported.
func (s *Semaphore) Free(ctx context.Context) (int, error) {
	m := s.weighted(1)
	info, err := m.Inspect(ctx)
	switch {
	case err != nil:
		return 0, err
	case info.Holder == nil:
		return s.permits, nil
	}
	free := s.permits
	for _, h := range append(info.Others, *info.Holder) {
		if h.Share.Capacity == 0 {
			return 0, nil
		}
		free -= h.Share.Weight
	}
	return max(free, 0), nil
}
