// Package gooselock is a session locker for github.com/pressly/goose: instances of an
// application that migrate the database at their start do so one after the other, with
// a lock of github.com/interlock-go/lock:
//
//	goose.NewProvider(dialect, db, migrations, goose.WithSessionLocker(gooselock.New(c.Mutex("migrations"))))
//
// If the lock is lost, the connection of goose is closed: no further migration begins,
// a transaction that has begun is completed, and the call fails with an error that matches
// lock.ErrLost. To roll such a transaction back, call goose under lock.Do instead, which
// also ends its context:
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

// session is the lease of one connection.
type session struct {
	lease      *lock.Lease
	keepConn   func() bool   // prevents that conn is closed; false if that has begun
	connClosed chan struct{} // closed when conn is closed
}

// New returns a session locker that locks m.
func New(m lock.Mutex) *Locker {
	return &Locker{m: m, sessions: map[*sql.Conn]*session{}}
}

// SessionLock waits for the lock until ctx ends.
func (l *Locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	lease, err := l.m.Lock(ctx)
	if err != nil {
		return err
	}
	s := &session{lease: lease, connClosed: make(chan struct{})}
	s.keepConn = context.AfterFunc(lease.Context(), func() {
		defer close(s.connClosed)
		_ = conn.Close() // returns at the end of the transaction under way
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[conn] = s
	return nil
}

// SessionUnlock releases the lock. If the lock was lost, the error matches lock.ErrLost.
func (l *Locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	l.mu.Lock()
	s := l.sessions[conn]
	delete(l.sessions, conn)
	l.mu.Unlock()
	if s == nil {
		return errors.New("gooselock: the session is not locked")
	}
	if !s.keepConn() {
		<-s.connClosed
	}
	return s.lease.Unlock(ctx)
}
