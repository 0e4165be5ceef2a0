package pglock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/interlock-go/lock/backend"
)

// queryOnce executes statements on one connection. If ctx ends before the reply, queryOnce returns, and awaitLate
// keeps the connection if it can.
func queryOnce[T any](ctx context.Context, b *Backend, scan pgx.RowToFunc[T], calls []call) ([]T, time.Time, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, time.Time{}, backend.NotExecuted(err)
	}
	pg := conn.Conn()
	used := pg.PgConn().CustomData()[usedKey] != nil
	pg.PgConn().CustomData()[usedKey] = true
	var mu sync.Mutex // guards late, and what scan writes
	late := false
	inTime := func(row pgx.CollectableRow) (none T, err error) {
		mu.Lock()
		defer mu.Unlock()
		if late {
			return none, ctx.Err()
		}
		return scan(row)
	}
	var rows []T
	var sent time.Time
	begun := time.Now()
	own, cut := context.WithCancel(context.WithoutCancel(ctx))
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		rows, sent, err = send(own, b, pg, inTime, calls)
	}()
	select {
	case <-replied:
		cut()
		if sqlState(err) != readOnly {
			conn.Release()
			return rows, sent, err
		}
		if used {
			err = demotedError{err}
			b.listener.drop(err)
		}
		refused := conn.Hijack()
		b.wg.Go(func() { closeConn(refused) })
		return rows, sent, err
	case <-ctx.Done():
	}
	mu.Lock()
	late = true
	mu.Unlock()
	if time.Since(begun) >= silence {
		b.checkIdle()
	}
	free := useSlot(ctx)
	b.wg.Go(func() {
		defer free()
		defer cut()
		if b.awaitLate(pg.PgConn(), replied) {
			conn.Release()
			return
		}
		_ = conn.Hijack() // while pgx closes a silent connection, that keeps its place in the pool for up to 15 s
		cut()
		<-replied
		b.closeSilent(pg)
	})
	return nil, time.Time{}, ctx.Err()
}

const (
	usedKey  = "interlock.used" // of a connection that has executed a request
	readOnly = "25006"          // SQLSTATE
)

// demotedError is the error of a request that a server refused which had accepted others on that connection: it is not
// the primary any more. The connection is closed, and a new one may lead to the primary.
type demotedError struct{ error }

func (e demotedError) Unwrap() error { return e.error }

// slot is the slot of a request. It is free when the request and its late connections have left it.
type slot struct {
	of    chan struct{}
	users atomic.Int32
}

func (s *slot) leave() {
	if s.users.Add(-1) == 0 {
		<-s.of
	}
}

type slotKey struct{}

// withSlot returns the context of a request that has a slot of slots, and the function that leaves it.
func withSlot(ctx context.Context, slots chan struct{}) (request context.Context, leave func()) {
	s := &slot{of: slots}
	s.users.Store(1)
	return context.WithValue(ctx, slotKey{}, s), s.leave
}

// useSlot keeps the slot of the request, if it has one, until leave is called.
func useSlot(request context.Context) (leave func()) {
	s, ok := request.Value(slotKey{}).(*slot)
	if !ok {
		return func() {}
	}
	s.users.Add(1)
	return s.leave
}

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
func (b *Backend) awaitLate(conn *pgconn.PgConn, replied <-chan struct{}) bool {
	wait := func(d time.Duration) bool {
		select {
		case <-replied:
			return true
		case <-time.After(d):
		case <-b.ctx.Done():
		}
		return false
	}
	if wait(lateCancel) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithValue(b.ctx, cancelKey{}, true), cancelTime)
	defer cancel()
	if err := conn.CancelRequest(ctx); err != nil || ctx.Err() != nil {
		return false // the link is silent; or the server may receive it later, and cancel another statement
	}
	if wait(answerTime) {
		return true
	}
	if b.answersAtOnce() {
		return false // the connection died without a sign
	}
	return wait(lateReply) // a server that answers is only slow
}

// answersAtOnce reports whether the server replies at once on a connection of its own.
func (b *Backend) answersAtOnce() bool {
	ctx, cancel := context.WithTimeout(b.ctx, answerTime)
	defer cancel()
	conn, err := b.connect(ctx)
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
func (b *Backend) checkIdle() {
	if !b.checkingIdle.CompareAndSwap(false, true) {
		return
	}
	b.listener.check()
	idle := b.pool.AcquireAllIdle(b.ctx)
	b.wg.Go(func() {
		defer b.checkingIdle.Store(false)
		var wg sync.WaitGroup
		for _, conn := range idle {
			wg.Go(func() {
				if answers(b.ctx, conn.Conn(), answerTime) {
					conn.Release()
					return
				}
				b.closeSilent(conn.Hijack())
			})
		}
		wg.Wait()
	})
}

// closeSilent closes a connection that is not of the pool and waits for nothing.
func (b *Backend) closeSilent(conn *pgx.Conn) {
	_ = conn.PgConn().Conn().Close()
	_ = conn.Close(b.ctx)
}
