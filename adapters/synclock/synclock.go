// Package synclock is a sync.Locker that holds a lock.Mutex, for code that accepts only
// a sync.Locker.
//
// A sync.Locker can report neither a failure to lock nor a loss, so New reports them in
// other ways. Use lock.Do where possible.
package synclock

import (
	"context"
	"errors"
	"fmt"

	"github.com/interlock-go/lock"
)

// Locker is a sync.Locker that holds a lock.Mutex. It is safe for concurrent use.
type Locker struct {
	ctx  context.Context
	m    lock.Mutex
	lost func(error)

	locked chan struct{} // holds a value from Lock to Unlock, even if the lock is lost
	lease  *lock.Lease   // nil if not locked
}

// New returns m as a sync.Locker. If m cannot be locked before ctx ends, Lock panics with
// the error of m.Lock or of ctx.
//
// If a lease ends before Unlock, lost is called once, in its own goroutine, with an error
// that matches lock.ErrLost or lock.ErrClosed. The code between Lock and Unlock does not
// notice the loss: lost must stop it, or end the process.
func New(ctx context.Context, m lock.Mutex, lost func(error)) *Locker {
	if lost == nil {
		panic("synclock: lost is nil: a loss of the lock would not be reported")
	}
	return &Locker{ctx: ctx, m: m, lost: lost, locked: make(chan struct{}, 1)}
}

// Lock waits for the lock.
func (l *Locker) Lock() {
	select {
	case l.locked <- struct{}{}:
	case <-l.ctx.Done():
		panic(fmt.Errorf("synclock: %q is locked in this process: %w", l.m.Name(), l.ctx.Err()))
	}
	lease, err := l.m.Lock(l.ctx)
	if err != nil {
		<-l.locked
		panic(err)
	}
	l.lease = lease
	context.AfterFunc(lease.Context(), func() {
		if err := lease.Err(); !errors.Is(err, lock.ErrReleased) {
			l.lost(err)
		}
	})
}

// Unlock releases the lock. It panics if the lock is not locked.
func (l *Locker) Unlock() {
	lease := l.lease
	if lease == nil {
		panic("synclock: Unlock of an unlocked lock")
	}
	l.lease = nil
	_ = lease.Unlock(l.ctx) // lost reports a loss; the client repeats a release that was not acknowledged
	<-l.locked
}
