package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/interlock-go/lock/backend"
)

// noRetry, as retryFor of query: a statement that the server rolled back is not sent again.
const noRetry time.Duration = -1

// call is a statement with its arguments.
type call struct {
	sql  string
	args []any
}

func do(sql string, args ...any) call { return call{sql, args} }

// query executes statements in one transaction and one round trip. It returns the rows of
// the last one, and of the others with its text, the time before they were sent, and an
// error of explain. When ctx ends, query returns; see queryOnce.
//
// A server that has become read-only has executed nothing, so query uses another connection at once.
// If the server rolls back the statement in favor of another transaction, query sends it
// again: within the timeout if retryFor is 0, else for retryFor with the whole timeout
// for each reply.
func query[T any](ctx context.Context, b *Backend, retryFor time.Duration, scan pgx.RowToFunc[T], calls ...call) (rows []T, sent time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return nil, sent, backend.NotExecuted(err)
	}
	if !b.enter() {
		return nil, sent, backend.ErrClosed
	}
	defer b.wg.Done()
	if b.fixPlans {
		calls = append([]call{do(b.sql.settings)}, calls...)
	}
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer func() { cancel() }()
	for try := 1; ; try++ {
		rows, sent, err = queryOnce(within, b, scan, calls)
		pause := time.Millisecond
		switch {
		case err == nil:
			return rows, sent, nil
		case errors.As(err, new(demotedError)):
			continue // on another connection; in the end on a new one
		case tooManyConnections(err):
			if s := b.pool.Stat(); s.AcquiredConns()+s.IdleConns() == 0 {
				b.listener.drop(errYielded)
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

func send[T any](ctx context.Context, b *Backend, conn *pgx.Conn, scan pgx.RowToFunc[T], calls []call) (rows []T, sent time.Time, err error) {
	// Without a prepared statement pgx reads results as text, of which settings of the session change the form.
	if len(calls) > 1 || b.opt.pooled.Load() && calls[0].sql != b.sql.probe {
		return pipeline(ctx, b, conn, scan, calls)
	}
	sent = time.Now()
	sql, args := calls[0].sql, calls[0].args
	if b.opt.pooled.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	result, err := conn.Query(ctx, sql, args...)
	if err == nil {
		rows, err = pgx.CollectRows(result, scan)
	}
	return rows, sent, err
}

// pipeline sends the statements together. The server executes them in one transaction; at
// READ COMMITTED each one sees what was committed before it began.
func pipeline[T any](ctx context.Context, b *Backend, conn *pgx.Conn, scan pgx.RowToFunc[T], calls []call) (rows []T, sent time.Time, err error) {
	prepare := !b.opt.pooled.Load() && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	batch, binary := &pgconn.Batch{}, []int16{pgx.BinaryFormatCode}
	for _, c := range calls {
		values, formats, err := encode(conn.TypeMap(), c.args)
		if err != nil {
			return nil, sent, err
		}
		if !prepare {
			batch.ExecParams(c.sql, values, nil, formats, binary)
			continue
		}
		statement, err := conn.Prepare(ctx, c.sql, c.sql) // once for each connection
		if err != nil {
			return nil, sent, err
		}
		batch.ExecPrepared(statement.Name, values, formats, binary)
	}
	sent = time.Now()
	results := conn.PgConn().ExecBatch(ctx, batch)
	for n := 0; err == nil && n < len(calls) && results.NextResult(); n++ {
		if calls[n].sql != calls[len(calls)-1].sql {
			_, err = results.ResultReader().Close()
			continue
		}
		var more []T
		more, err = pgx.CollectRows(pgx.RowsFromResultReader(conn.TypeMap(), results.ResultReader()), scan)
		rows = append(rows, more...)
	}
	return rows, sent, errors.Join(err, results.Close())
}

// encode returns arguments as the server reads them: bytes as they are, all else as text.
func encode(types *pgtype.Map, args []any) (values [][]byte, formats []int16, err error) {
	for _, arg := range args {
		value, format := []byte(nil), int16(pgx.TextFormatCode)
		switch v := arg.(type) {
		case []byte:
			value, format = v, pgx.BinaryFormatCode
		case [][]byte, []string, []int64:
			array, _ := types.TypeForValue(arg)
			if value, err = types.Encode(array.OID, format, arg, nil); err != nil {
				return nil, nil, err
			}
		default: // string, a number, bool
			value = []byte(fmt.Sprint(arg)) // not nil, which is NULL
		}
		values, formats = append(values, value), append(formats, format)
	}
	return values, formats, nil
}

// exec executes statements and returns the time before they were sent and the number of
// rows of the last one.
func (b *Backend) exec(ctx context.Context, calls ...call) (sent time.Time, n int, err error) {
	rows, sent, err := query(ctx, b, 0, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil }, calls...)
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
