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
	own, cut := context.WithCancel(context.WithoutCancel(ctx))
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		rows, sent, err = send(own, b, pg, inTime, calls)
	}()
	select {
	case <-replied:
		cut()
		conn.Release()
		return rows, sent, err
	case <-ctx.Done():
	}
	mu.Lock()
	late = true
	mu.Unlock()
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
		_ = pg.PgConn().Conn().Close()
		_ = pg.Close(b.ctx)
	})
	return nil, time.Time{}, ctx.Err()
}

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
	lateCancel = 2 * time.Second  // until a late statement is canceled
	cancelTime = time.Second      // for the server to receive that
	lateReply  = 10 * time.Second // for its reply to the statement then
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
	return wait(lateReply) // a server that answers is only slow
}
