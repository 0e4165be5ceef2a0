// Package synclock makes a sync.Locker of a lock, for code that takes nothing else.
//
// A sync.Locker cannot say that the lock was not to be had, nor that it was lost, so
// both have to be said elsewhere: see New. Where there is a choice, use lock.Do.
package synclock

import (
	"context"
	"errors"
	"fmt"

	"github.com/interlock-go/lock"
)

// Locker is a sync.Locker that holds a lock.
type Locker struct {
	ctx  context.Context
	m    lock.Mutex
	lost func(error)

	turn  chan struct{} // holds a value from Lock to Unlock, even if the lock is lost between
	lease *lock.Lease   // nil unless it is somebody's turn
}

// New returns m as a sync.Locker. ctx bounds each wait. Lock panics with an error, that of
// m.Lock or of ctx, if the lock cannot be had: it must not return without.
//
// lost is called once for each hold that ended before Unlock, with an error that
// matches lock.ErrLost or lock.ErrClosed, in a goroutine of its own, when the hold ends.
// What runs between Lock and Unlock knows nothing of it: lost has to make it stop, or end
// the process.
func New(ctx context.Context, m lock.Mutex, lost func(error)) *Locker {
	if lost == nil {
		panic("synclock: lost is nil: nobody would learn that the lock is lost")
	}
	return &Locker{ctx: ctx, m: m, lost: lost, turn: make(chan struct{}, 1)}
}

// Lock waits for the lock.
func (l *Locker) Lock() {
	select {
	case l.turn <- struct{}{}:
	case <-l.ctx.Done():
		panic(fmt.Errorf("synclock: %q is locked in this process: %w", l.m.Name(), l.ctx.Err()))
	}
	lease, err := l.m.Lock(l.ctx)
	if err != nil {
		<-l.turn
		panic(err)
	}
	l.lease = lease
	context.AfterFunc(lease.Context(), func() {
		if err := lease.Err(); !errors.Is(err, lock.ErrReleased) {
			l.lost(err)
		}
	})
}

// Unlock frees the lock. It panics if the lock is not locked.
func (l *Locker) Unlock() {
	lease := l.lease
	if lease == nil {
		panic("synclock: Unlock of a lock that is not locked")
	}
	l.lease = nil
	_ = lease.Unlock(l.ctx) // a loss is told by lost; what was not acknowledged the client goes on to free
	<-l.turn
}
