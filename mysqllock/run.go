package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
)

// A connSource returns a connection for one try of a statement, and the function that
// takes it back with the error of the try. Its errors mean that nothing was sent.
type connSource func(context.Context) (conn *sql.Conn, giveBack func(error), err error)

// exec executes a statement and returns how many rows it changed. Its errors are classified.
func (b *Backend) exec(ctx context.Context, q string) (int64, error) {
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (int64, error) {
		n, err := changedRows(ctx, c, q)
		return n, classify(err)
	})
}

func changedRows(ctx context.Context, c *sql.Conn, q string) (int64, error) {
	r, err := c.ExecContext(ctx, q)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// run calls f with a connection of source and returns its result.
//
// It returns as soon as ctx ends. What f has sent then completes in the background, within
// the timeout, so that the connection stays usable.
//
// If the server rolled the statement back because of others, run sends it again until the
// timeout, after growing pauses: of the transactions that meet on a row one succeeds each
// time, so many at once need many tries. It also sends again what was not written to a
// broken connection, and, over a new connection, what a server that became read-only refused.
func run[T any](ctx context.Context, b *Backend, source connSource, f func(context.Context, *sql.Conn) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, backend.NotExecuted(err)
	}
	begun := time.Now()
	last := result{err: backend.ErrClosed}
	for try := 1; b.enter(); try++ {
		conn, giveBack, err := source(ctx)
		if err != nil {
			b.wg.Done()
			return none, stillUncertain(last.err, err)
		}
		done := make(chan result, 1)
		sent := time.Now()
		go func() {
			defer b.wg.Done()
			statement, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opt.timeout)
			defer cancel()
			value, err := f(statement, conn)
			giveBack(err)
			switch {
			case readOnly(err):
				b.closeIdle(statement) // before the next try
			case err != nil && statement.Err() != nil && number(err) == 0: // not the deadline of the caller
				b.testIdle()
				err = backend.Uncertain(fmt.Errorf("mysql%s: no answer within %v", b.address, b.opt.timeout))
			}
			done <- result{value, err}
		}()
		select {
		case r := <-done:
			last = result{r.value, stillUncertain(last.err, r.err)}
		case <-ctx.Done():
			if unanswered(ctx, sent) {
				go b.testIdle()
			}
			return none, backend.Uncertain(ctx.Err())
		}
		switch err := last.err; {
		case rolledBack(err) && time.Since(begun) < b.opt.timeout:
			pause := time.Millisecond * time.Duration(min(try, 50))
			if try > 1 && !sleep(ctx, pause/2+rand.N(pause)) {
				return none, backend.Uncertain(ctx.Err())
			}
		case (errors.Is(err, driver.ErrBadConn) || readOnly(err)) && try < 3:
		default:
			return last.value, err
		}
	}
	return none, last.err
}

// stillUncertain returns err as ErrUncertain if an earlier try of the statement may have
// been executed.
func stillUncertain(earlier, err error) error {
	if err != nil && errors.Is(earlier, backend.ErrUncertain) && !errors.Is(err, backend.ErrUncertain) {
		return backend.Uncertain(err)
	}
	return err
}

// poolConn is the connSource of the pool. If the server refuses another connection,
// poolConn waits, up to the timeout, for a connection of the pool or a lock connection.
func (b *Backend) poolConn(ctx context.Context) (*sql.Conn, func(error), error) {
	polls := pollSchedule{max: 100 * time.Millisecond}
	for begun := time.Now(); ; {
		conn, err := b.connect(ctx)
		if err == nil {
			return conn, func(err error) {
				if readOnly(err) {
					discard(conn)
				}
				_ = conn.Close() // the pool drops a broken connection
			}, nil
		}
		if !serverFull(err) {
			return nil, nil, err
		}
		if c := b.notifier.yieldConns(ctx); c != nil {
			return c.conn, c.checkin, nil
		}
		switch {
		case b.life.Err() != nil:
			return nil, nil, backend.ErrClosed
		case time.Since(begun) > b.opt.timeout:
			return nil, nil, err
		}
		if !sleep(ctx, polls.backoff()) {
			return nil, nil, backend.NotExecuted(ctx.Err())
		}
	}
}

// connect takes a connection from the pool, within the timeout.
func (b *Backend) connect(ctx context.Context) (*sql.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer cancel()
	conn, err := b.db.Conn(bounded)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case bounded.Err() != nil:
		err = fmt.Errorf("mysql%s: no connection within %v", b.address, b.opt.timeout)
	default:
		err = failure(err)
	}
	return nil, backend.NotExecuted(err)
}

// discard closes a connection instead of returning it to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// enter registers work that Close waits for. It returns false after Close.
func (b *Backend) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Add(1)
	return true
}

// sleep returns false if ctx ends before d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
