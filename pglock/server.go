package pglock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// server sends statements through a pool.
type server struct {
	pool     *pgxpool.Pool
	ownsPool bool // Close closes the pool
	opt      options
	sql      statements
	life     *call.Life // requests and goroutines

	checkingIdle      atomic.Bool          // checkIdle runs
	connectionDoubted func()               // connections may have died without a sign
	sends             func(session uint32) // a session is used for a request
	demoted           func(error)          // the server is not the primary any more, or accepts no more connections
}

func newServer(pool *pgxpool.Pool, o options, sql statements) *server {
	return &server{
		pool: pool, opt: o, sql: sql, life: call.NewLife(),
		connectionDoubted: func() {}, sends: func(uint32) {}, demoted: func(error) {},
	}
}

// query executes a statement, which is a transaction. It returns its rows, the time before it was sent, and an
// error of explain. When ctx ends, query returns; see queryOnce.
//
// A server that has become read-only has executed nothing, so query uses another connection at once. If the server rolls
// back the statement in favor of another transaction, query sends it again within the timeout. If the functions are
// missing, query creates them again.
func query[T any](
	ctx context.Context, s *server, scan pgx.RowToFunc[T], sql string, args ...any,
) (rows []T, sent time.Time, err error) {
	return queryThen(ctx, s, scan, nil, sql, args...)
}

// queryThen is query. Then, for as long as then returns a statement, it executes that over the same connection, and
// returns its rows behind the others. An error of such a statement is none.
func queryThen[T any](
	ctx context.Context, s *server, scan pgx.RowToFunc[T], then func(rows []T) (sql string, args []any), sql string, args ...any,
) (rows []T, sent time.Time, err error) {
	within := new(call.Context)
	within.Init(ctx, ctx, time.Now().Add(s.opt.timeout))
	defer within.End(context.Canceled)
	created := false
	for try := 1; ; try++ {
		rows, sent, err = queryOnce(within, s, scan, then, sql, args)
		pause := time.Millisecond
		switch {
		case err == nil:
			return rows, sent, nil
		case errors.As(err, new(demotedError)):
			continue // on another connection; in the end on a new one
		case sqlState(err) == noFunction && s.opt.create && !created:
			created = true
			if err := s.create(within, s.sql.functions); err != nil {
				return nil, sent, backend.NotExecuted(err)
			}
			continue
		case tooManyConnections(err):
			if stat := s.pool.Stat(); stat.AcquiredConns()+stat.IdleConns() == 0 {
				s.demoted(errYielded)
			}
			pause = 5 * time.Millisecond // until another statement returns its connection
		case !rolledBack(err):
			return nil, sent, s.explain(ctx, within, err)
		}
		call.Sleep(within, pause+rand.N(pause*time.Duration(min(try, 20))))
		if within.Err() != nil {
			return nil, sent, s.explain(ctx, within, err)
		}
	}
}

// one executes a statement that returns one answer.
func one(ctx context.Context, s *server, sql string, args ...any) (answer, time.Time, error) {
	rows, sent, err := query(ctx, s, scanAnswer, sql, args...)
	if err != nil || len(rows) == 0 {
		return answer{}, sent, err
	}
	return rows[0], sent, nil
}

// exec executes a statement and returns the number of its rows.
func (s *server) exec(ctx context.Context, sql string, args ...any) (n int, err error) {
	rows, _, err := query(ctx, s, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil }, sql, args...)
	return len(rows), err
}

// result is that of a statement.
type result[T any] struct {
	rows []T
	sent time.Time
}

// queryOnce executes a statement on one connection. If ctx ends before the reply, queryOnce returns, and awaitLate
// keeps the connection if it can.
func queryOnce[T any](
	ctx context.Context, s *server, scan pgx.RowToFunc[T], then func([]T) (string, []any), sql string, args []any,
) ([]T, time.Time, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, time.Time{}, backend.NotExecuted(err)
	}
	pg := conn.Conn()
	used := pg.PgConn().CustomData()[usedKey] != nil
	pg.PgConn().CustomData()[usedKey] = true
	at := time.Now()
	part := memberOf(ctx)
	var begun atomic.Bool // by the request, which uses the connection then, or because there will be none
	replied := make(chan struct{})
	r, err := call.Detached(ctx, s.life, func(_ context.Context, sending *call.Sending) (result[T], error) {
		if !begun.CompareAndSwap(false, true) {
			return result[T]{}, ctx.Err()
		}
		defer close(replied)
		if !sending.Write() || !part.write() {
			return result[T]{}, cmp.Or(ctx.Err(), context.Canceled)
		}
		if !s.opt.pooled.Load() { // the number of a pooler is not that of the session
			s.sends(pg.PgConn().PID())
		}
		r, err := send(context.WithoutCancel(ctx), s, pg, scan, sql, args)
		for then != nil && err == nil {
			next, args := then(r.rows)
			if next == "" {
				break
			}
			more, failed := send(context.WithoutCancel(ctx), s, pg, scan, next, args)
			if failed != nil {
				break
			}
			r.rows = append(r.rows, more.rows...)
		}
		return r, err
	})
	select {
	case <-replied:
		if sqlState(err) != readOnly {
			conn.Release()
			return r.rows, r.sent, err
		}
		if used {
			err = demotedError{err}
			s.demoted(err)
		}
		refused := conn.Hijack()
		s.life.Go(func() { closeConn(refused) })
		return nil, r.sent, err
	default:
	}
	if begun.CompareAndSwap(false, true) {
		conn.Release()
		return nil, time.Time{}, err
	}
	if time.Since(at) >= silence {
		s.checkIdle()
	}
	free := part.use()
	late := func() {
		defer free()
		if s.awaitLate(pg.PgConn(), replied) {
			conn.Release()
			return
		}
		_ = conn.Hijack() // while pgx closes a silent connection, that keeps its place in the pool for up to 15 s
		_ = pg.PgConn().Conn().Close()
		<-replied
		s.closeSilent(pg)
	}
	if !s.life.Go(late) {
		late()
	}
	return nil, time.Time{}, err
}

func send[T any](
	ctx context.Context, s *server, conn *pgx.Conn, scan pgx.RowToFunc[T], sql string, args []any,
) (r result[T], err error) {
	if s.opt.pooled.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...) // no statement is prepared
	}
	r.sent = time.Now()
	rows, err := conn.Query(ctx, sql, args...)
	if err == nil {
		r.rows, err = pgx.CollectRows(rows, scan)
	}
	return r, err
}

const usedKey = "interlock.used" // of a connection that has executed a request

// demotedError is the error of a request that a server refused which had accepted others on that connection: it is not
// the primary any more. The connection is closed, and a new one may lead to the primary.
type demotedError struct{ error }

func (e demotedError) Unwrap() error { return e.error }
