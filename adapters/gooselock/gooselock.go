// Package gooselock lets instances of an application that all migrate the database at
// their start, by github.com/pressly/goose, do so one after the other, on any backend of
// github.com/interlock-go/lock:
//
//	goose.NewProvider(dialect, db, migrations, goose.WithSessionLocker(gooselock.New(c.Mutex("migrations"))))
//
// If the lock is lost, goose begins no further migration, for its connection is closed;
// one in a transaction that has begun is carried through, and the call fails with an
// error that matches lock.ErrLost. To have goose's context end as well, which rolls such
// a transaction back, call it under lock.Do instead:
//
//	err := lock.Do(ctx, c.Mutex("migrations"), func(ctx context.Context) error {
//		_, err := provider.Up(ctx)
//		return err
//	})
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	gooselocks "github.com/pressly/goose/v3/lock"

	"github.com/interlock-go/lock"
)

// Locker is a goose session locker. Any number of providers may share it.
type Locker struct {
	m lock.Mutex

	mu       sync.Mutex
	sessions map[*sql.Conn]*session
}

var _ gooselocks.SessionLocker = (*Locker)(nil)

// session is one hold of the lock.
type session struct {
	lease  *lock.Lease
	stop   func() bool   // conn is not closed when the lease ends
	closed chan struct{} // closed when it was
}

// New returns a session locker that takes m.
func New(m lock.Mutex) *Locker {
	return &Locker{m: m, sessions: map[*sql.Conn]*session{}}
}

// SessionLock waits for the lock, for as long as ctx lasts.
func (l *Locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	lease, err := l.m.Lock(ctx)
	if err != nil {
		return err
	}
	s := &session{lease: lease, closed: make(chan struct{})}
	s.stop = context.AfterFunc(lease.Context(), func() {
		defer close(s.closed)
		_ = conn.Close() // returns when the transaction under way is over
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[conn] = s
	return nil
}

// SessionUnlock frees the lock. Its error matches lock.ErrLost if the lock had been lost.
func (l *Locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	l.mu.Lock()
	s := l.sessions[conn]
	delete(l.sessions, conn)
	l.mu.Unlock()
	if s == nil {
		return errors.New("gooselock: the session is not locked")
	}
	if !s.stop() {
		<-s.closed
	}
	return s.lease.Unlock(ctx)
}
