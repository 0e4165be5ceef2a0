// Package certmagiclock replaces the locks of a storage of github.com/caddyserver/certmagic
// by those of github.com/interlock-go/lock, so that one of the nodes that share the storage
// obtains or renews a certificate at a time:
//
//	certmagic.Default.Storage = certmagiclock.New(storage, c.Mutex)
//
// CertMagic's interface cannot end work whose lock is lost: an attempt to obtain
// a certificate continues. CertMagic renews the lock before each attempt; if the lock was
// lost, the storage then locks it again or makes the attempt fail.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/interlock-go/lock"
)

// Storage is a certmagic.Storage whose locks are those of a lock.Client. It implements
// certmagic.TryLocker and certmagic.LockLeaseRenewer.
type Storage struct {
	certmagic.Storage
	mutex func(name string, opts ...lock.MutexOption) lock.Mutex

	mu    sync.Mutex
	names map[string]*localLock
}

// localLock reserves a name for one caller in this process, from before the request to
// the backend until Unlock, even if the lease is lost: the calls of certmagic identify
// a holder by nothing but the name.
type localLock struct {
	lease *lock.Lease   // nil before the grant and from Unlock on
	freed chan struct{} // closed when the name is free
}

// New returns storage with the locks mutex("certmagic/" + name); mutex is usually the
// method Mutex of a lock.Client. The locks of storage itself are not used.
func New(storage certmagic.Storage, mutex func(name string, opts ...lock.MutexOption) lock.Mutex) *Storage {
	return &Storage{Storage: storage, mutex: mutex, names: map[string]*localLock{}}
}

// Lock waits for the lock of name until ctx ends. The lease is renewed until Unlock, also
// after the end of ctx.
func (s *Storage) Lock(ctx context.Context, name string) error {
	for {
		other := s.reserve(name)
		if other == nil {
			return s.acquire(ctx, name, lock.Mutex.Lock)
		}
		select {
		case <-other.freed:
		case <-ctx.Done():
			return fmt.Errorf("certmagiclock: %q is locked in this process: %w", name, ctx.Err())
		}
	}
}

// TryLock makes one attempt. It returns false if another holder has the lock.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	if s.reserve(name) != nil {
		return false, nil
	}
	err := s.acquire(ctx, name, lock.Mutex.TryLock)
	if errors.Is(err, lock.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock of name. It returns nil if the lock was lost.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	lease, err := s.lease(name, true)
	if err != nil {
		return err
	}
	defer s.free(name)
	if err := lease.Unlock(ctx); !errors.Is(err, lock.ErrLost) {
		return err
	}
	return nil
}

// RenewLockLease implements certmagic.LockLeaseRenewer. The client renews the lease by
// itself; if the lease is lost, RenewLockLease makes one attempt to lock name again.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	lease, err := s.lease(name, false)
	if err != nil || lease.Err() == nil {
		return err
	}
	renewed, err := s.mutex("certmagic/" + name).TryLock(ctx)
	if err != nil {
		return fmt.Errorf("%w; %w", lease.Err(), err)
	}
	s.mu.Lock()
	l := s.names[name]
	locked := l != nil && l.lease == lease
	if locked {
		l.lease = renewed
	}
	s.mu.Unlock()
	if !locked { // Unlock was called meanwhile
		return errors.Join(notLocked(name), renewed.Unlock(ctx))
	}
	return nil
}

// reserve reserves name for the caller, or returns the reservation of another one.
func (s *Storage) reserve(name string) (other *localLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other = s.names[name]; other == nil {
		s.names[name] = &localLock{freed: make(chan struct{})}
	}
	return other
}

// acquire locks a reserved name. If that fails, it frees the name.
func (s *Storage) acquire(ctx context.Context, name string, how func(lock.Mutex, context.Context) (*lock.Lease, error)) error {
	lease, err := how(s.mutex("certmagic/"+name), ctx)
	if err != nil {
		s.free(name)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name].lease = lease
	return nil
}

func (s *Storage) free(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.names[name]; l != nil {
		close(l.freed)
		delete(s.names, name)
	}
}

// lease returns the lease of name. With remove, name has no lease afterwards.
func (s *Storage) lease(name string, remove bool) (*lock.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.names[name]
	if l == nil || l.lease == nil {
		return nil, notLocked(name)
	}
	lease := l.lease
	if remove {
		l.lease = nil
	}
	return lease, nil
}

func notLocked(name string) error { return fmt.Errorf("certmagiclock: %q is not locked", name) }
