package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	silence    = 100 * time.Millisecond // after which a missing reply is a sign of a dead connection
	lateCancel = 2 * time.Second        // until a late statement is canceled
	cancelTime = time.Second            // for the server to receive that
	answerTime = time.Second            // for a connection that is alive to reply to a ping, and to a canceled statement
	lateReply  = 10 * time.Second       // for the reply to a canceled statement of a server that is slow
)

// awaitLate waits for the reply to a statement whose caller has returned, and has the server cancel the statement if
// it takes long. It returns false if the connection must be closed. A new connection costs the server far more than a
// statement, and a cancel request is a connection: clients that replaced theirs whenever a reply was late, or had each
// late statement canceled soon, kept a busy server from ever answering in time.
func (s *server) awaitLate(conn *pgconn.PgConn, replied <-chan struct{}) bool {
	wait := func(d time.Duration) bool {
		select {
		case <-replied:
			return true
		case <-time.After(d):
		case <-s.life.Context().Done():
		}
		return false
	}
	if wait(lateCancel) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithValue(s.life.Context(), cancelKey{}, true), cancelTime)
	defer cancel()
	if err := conn.CancelRequest(ctx); err != nil || ctx.Err() != nil {
		return false // the link is silent; or the server may receive it later, and cancel another statement
	}
	if wait(answerTime) {
		return true
	}
	if s.answersAtOnce() {
		return false // the connection died without a sign
	}
	return wait(lateReply) // a server that answers is only slow
}

// answersAtOnce reports whether the server replies at once on a connection of its own.
func (s *server) answersAtOnce() bool {
	ctx, cancel := context.WithTimeout(s.life.Context(), answerTime)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return false
	}
	defer closeConn(conn)
	return answers(ctx, conn, answerTime)
}

// answers reports whether a connection is alive.
func answers(ctx context.Context, conn *pgx.Conn, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return conn.Ping(ctx) == nil
}

// checkIdle closes the connections that may have died without a sign, as when a router forgets them or a virtual address
// moves: those that are idle, and the one that listens, if they do not reply to a ping at once. Until then no request uses
// them. It returns at once.
func (s *server) checkIdle() {
	if !s.checkingIdle.CompareAndSwap(false, true) {
		return
	}
	s.connectionDoubted()
	idle := s.pool.AcquireAllIdle(s.life.Context())
	s.life.Go(func() {
		defer s.checkingIdle.Store(false)
		var wg sync.WaitGroup
		for _, conn := range idle {
			wg.Go(func() {
				if answers(s.life.Context(), conn.Conn(), answerTime) {
					conn.Release()
					return
				}
				s.closeSilent(conn.Hijack())
			})
		}
		wg.Wait()
	})
}

// closeSilent closes a connection that is not of the pool and waits for nothing.
func (s *server) closeSilent(conn *pgx.Conn) {
	_ = conn.PgConn().Conn().Close()
	_ = conn.Close(s.life.Context())
}
