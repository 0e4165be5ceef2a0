// Package certmagiclock gives any storage of github.com/caddyserver/certmagic the locks
// of github.com/interlock-go/lock, so that of all nodes that share the storage one at
// a time obtains or renews a certificate:
//
//	certmagic.Default.Storage = certmagiclock.New(storage, c.Mutex)
//
// CertMagic's interface has no way to end work whose lock is lost. It asks before each
// attempt whether the lock is still there, and this storage then takes it again or makes
// the attempt fail; an attempt that is under way goes on.
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

// Storage is a certmagic.Storage with other locks. It is also a certmagic.TryLocker and
// a certmagic.LockLeaseRenewer.
type Storage struct {
	certmagic.Storage
	mutex func(name string, opts ...lock.MutexOption) lock.Mutex

	mu   sync.Mutex
	held map[string]*hold
}

// hold is a name's in this process. It begins before the lock is asked for and lasts until
// Unlock, even if the lock is lost: calls tell no holder from another but by the name.
type hold struct {
	lease *lock.Lease   // nil while the lock is waited for, and from Unlock on
	over  chan struct{} // closed when the hold is
}

// New returns storage with the locks mutex("certmagic/" + name); mutex is usually
// a client's Mutex. The locks of storage itself are not used.
func New(storage certmagic.Storage, mutex func(name string, opts ...lock.MutexOption) lock.Mutex) *Storage {
	return &Storage{Storage: storage, mutex: mutex, held: map[string]*hold{}}
}

// Lock waits for the lock of a name. It is renewed until Unlock, whatever becomes of ctx.
func (s *Storage) Lock(ctx context.Context, name string) error {
	for {
		other := s.begin(name)
		if other == nil {
			return s.take(ctx, name, lock.Mutex.Lock)
		}
		select {
		case <-other.over:
		case <-ctx.Done():
			return fmt.Errorf("certmagiclock: %q is locked in this process: %w", name, ctx.Err())
		}
	}
}

// TryLock makes one attempt. It reports false if somebody else holds the lock.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	if s.begin(name) != nil {
		return false, nil
	}
	err := s.take(ctx, name, lock.Mutex.TryLock)
	if errors.Is(err, lock.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

// Unlock frees the lock of a name. A lock that was lost is free: that is no error.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	lease, err := s.lease(name, true)
	if err != nil {
		return err
	}
	defer s.end(name)
	if err := lease.Unlock(ctx); !errors.Is(err, lock.ErrLost) {
		return err
	}
	return nil
}

// RenewLockLease is asked by certmagic before each attempt to obtain a certificate. The
// lock renews itself, so nothing is to be done unless it is lost: then one attempt is made
// to have it again, after which certmagic looks whether there still is something to do.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	lease, err := s.lease(name, false)
	if err != nil || lease.Err() == nil {
		return err
	}
	again, err := s.mutex("certmagic/" + name).TryLock(ctx)
	if err != nil {
		return fmt.Errorf("%w; %w", lease.Err(), err)
	}
	s.mu.Lock()
	h := s.held[name]
	still := h != nil && h.lease == lease
	if still {
		h.lease = again
	}
	s.mu.Unlock()
	if !still {
		return errors.Join(notLocked(name), again.Unlock(ctx)) // unlocked meanwhile
	}
	return nil
}

// begin makes a name this caller's in this process, or returns whose it is.
func (s *Storage) begin(name string) (other *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other = s.held[name]; other == nil {
		s.held[name] = &hold{over: make(chan struct{})}
	}
	return other
}

// take gets the lock of a name that has been begun, or ends it.
func (s *Storage) take(ctx context.Context, name string, how func(lock.Mutex, context.Context) (*lock.Lease, error)) error {
	lease, err := how(s.mutex("certmagic/"+name), ctx)
	if err != nil {
		s.end(name)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name].lease = lease
	return nil
}

func (s *Storage) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		close(h.over)
		delete(s.held, name)
	}
}

// lease is that of a name that is locked, which it is no more if the lease is taken.
func (s *Storage) lease(name string, take bool) (*lock.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[name]
	if h == nil || h.lease == nil {
		return nil, notLocked(name)
	}
	lease := h.lease
	if take {
		h.lease = nil
	}
	return lease, nil
}

func notLocked(name string) error { return fmt.Errorf("certmagiclock: %q is not locked", name) }
