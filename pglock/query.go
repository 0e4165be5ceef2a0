package pglock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// noRetry, as retryFor of query: a statement that the server rolled back is not sent again.
const noRetry time.Duration = -1

// query executes one statement and returns its rows, the time before it was sent, and an
// error of explain. When ctx ends, query closes the connection, so that no reply stays
// on a connection of the pool.
//
// If the server rolls back the statement in favor of another transaction, query sends it
// again: within the timeout if retryFor is 0, else for retryFor with the whole timeout
// for each reply.
func query[T any](ctx context.Context, b *Backend, retryFor time.Duration, scan pgx.RowToFunc[T], sql string, args ...any) (rows []T, sent time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return nil, sent, backend.NotExecuted(err)
	}
	if !b.enter() {
		return nil, sent, backend.ErrClosed
	}
	defer b.wg.Done()
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer func() { cancel() }()
	for try := 1; ; try++ {
		rows, sent, err = queryOnce(within, b, scan, sql, args)
		pause := time.Millisecond
		switch {
		case err == nil:
			return rows, sent, nil
		case tooManyConnections(err):
			if s := b.pool.Stat(); s.AcquiredConns()+s.IdleConns() == 0 {
				b.listener.yield()
			}
			pause = 5 * time.Millisecond // until another statement returns its connection
		case !rolledBack(err), retryFor != 0 && time.Since(begun) >= retryFor:
			return nil, sent, b.explain(ctx, within, err)
		case retryFor > 0:
			if b.ctx.Err() != nil {
				return nil, sent, backend.ErrClosed
			}
			cancel()
			next, end := context.WithTimeout(ctx, b.opt.timeout)
			within, cancel = next, end
		}
		sleep(within, pause+rand.N(pause*time.Duration(min(try, 20))))
		if within.Err() != nil {
			return nil, sent, b.explain(ctx, within, err)
		}
	}
}

func queryOnce[T any](ctx context.Context, b *Backend, scan pgx.RowToFunc[T], sql string, args []any) (rows []T, sent time.Time, err error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, sent, backend.NotExecuted(err)
	}
	defer conn.Release() // closes the connection if a reply is left on it
	sent = time.Now()
	if b.opt.pooled.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	result, err := conn.Query(ctx, sql, args...)
	if err == nil {
		rows, err = pgx.CollectRows(result, scan)
	}
	return rows, sent, err
}

// exec executes a statement and returns the time before it was sent and its number of rows.
func (b *Backend) exec(ctx context.Context, sql string, args ...any) (sent time.Time, n int, err error) {
	rows, sent, err := query(ctx, b, 0, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil }, sql, args...)
	return sent, len(rows), err
}

// ended returns the error of a context that has ended, or whose deadline has passed:
// the deadline of the connection is the same and may fail a request first.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
