package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/interlock-go/lock/backend"
)

// query executes one statement and calls scan for each row. Each try begins with
// reset, if it is not nil: the server may undo a statement whose rows were read. The
// time is that of before it was sent. The context's end closes the connection, so no
// reply is ever left on one that goes back to the pool.
func (b *Backend) query(ctx context.Context, reset func(), scan func(pgx.Rows) error, sql string, args ...any) (time.Time, error) {
	return b.queryFor(ctx, 0, reset, scan, sql, args...)
}

// noPatience: what the server undoes is not sent again.
const noPatience time.Duration = -1

// queryFor is query for who has more time than the timeout: with patience what the
// server undoes is sent again for that long, with all of the timeout for each answer.
// At an isolation level that aborts what another overtook one of those that meet on
// a row gets through each time.
func (b *Backend) queryFor(ctx context.Context, patience time.Duration, reset func(), scan func(pgx.Rows) error, sql string, args ...any) (sent time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return sent, err // nothing was sent
	}
	if !b.enter() {
		return sent, backend.ErrClosed
	}
	defer b.wg.Done()
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer func() { cancel() }()
	for n := 0; ; n++ {
		if reset != nil {
			reset()
		}
		sent, err = b.once(within, scan, sql, args)
		pause := time.Millisecond
		if full(err) {
			if s := b.pool.Stat(); s.AcquiredConns()+s.IdleConns() == 0 {
				b.listener.yield()
			}
			pause = 5 * time.Millisecond // one of the pool's may be free soon
		} else if !conflict(err) || patience != 0 && time.Since(begun) >= patience {
			break
		} else if patience > 0 {
			if b.life.Err() != nil {
				return sent, backend.ErrClosed // nothing was executed
			}
			cancel()
			next, end := context.WithTimeout(ctx, b.opt.timeout)
			within, cancel = next, end
		}
		sleep(within, pause+rand.N(pause*time.Duration(min(n+1, 20))))
		if within.Err() != nil {
			break
		}
	}
	if err == nil {
		return sent, nil
	}
	return sent, b.explain(ctx, within, err)
}

func (b *Backend) once(ctx context.Context, scan func(pgx.Rows) error, sql string, args []any) (time.Time, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return time.Time{}, notSent{err}
	}
	defer conn.Release() // closed instead if anything is left on it
	sent := time.Now()
	if b.pooled {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return sent, err
	}
	defer rows.Close()
	for rows.Next() {
		if scan == nil {
			continue
		}
		if err := scan(rows); err != nil {
			return sent, err
		}
	}
	rows.Close()
	return sent, rows.Err()
}

// exec executes a statement whose rows do not matter but for their number.
func (b *Backend) exec(ctx context.Context, sql string, args ...any) (rows int, err error) {
	_, rows, err = b.count(ctx, sql, args...)
	return rows, err
}

// count is exec with the time of query.
func (b *Backend) count(ctx context.Context, sql string, args ...any) (sent time.Time, rows int, err error) {
	sent, err = b.query(ctx, func() { rows = 0 }, func(pgx.Rows) error { rows++; return nil }, sql, args...)
	return sent, rows, err
}

// notSent is a failure before anything was sent.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// conflict tells that the server undid the statement because of another one, so
// that it may be executed again.
func conflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// full tells that the server refused another connection: it has as many as it, the
// database or the role may have.
func full(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "53300"
}

// explain is the error of a failed statement, ErrUncertain if it may have been executed.
func (b *Backend) explain(ctx, within context.Context, err error) error {
	certain := errors.As(err, new(notSent)) || pgconn.SafeToRetry(err)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && !certain {
		// a connection that is ended may have been ended after the commit
		severity := pg.SeverityUnlocalized // servers before 9.6 have the other only, in the language of lc_messages
		if severity == "" {
			severity = pg.Severity
		}
		certain = severity != "FATAL" && severity != "PANIC"
	}
	switch {
	case ctx.Err() == nil && within.Err() != nil:
		// ours, and not to be taken for the caller's deadline
		what := "no answer"
		switch {
		case conflict(err):
			what = "other statements came first, each time"
		case certain:
			what = "no connection"
		}
		err = fmt.Errorf("postgres at %s: %s within %v (%s)", b.address(), what, b.opt.timeout, strings.ReplaceAll(err.Error(), "\n", "; "))
	case ended(ctx) != nil && !errors.Is(err, ended(ctx)):
		err = fmt.Errorf("postgres: %w: %w", err, ended(ctx))
	default:
		err = b.failure(err)
	}
	if certain {
		return err
	}
	return backend.Uncertain(err)
}

// failure names what is wrong.
func (b *Backend) failure(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return fmt.Errorf("postgres: %w", err)
	}
	hint := ""
	switch pg.Code {
	case "42P01", "3F000":
		hint = fmt.Sprintf("the table %s is missing: let it be made with create=true, or apply pglock.Schema", b.sql.table)
	case "42501":
		hint = "privileges needed: USAGE on the schema, SELECT, INSERT and UPDATE on the table, and to make it CREATE on the schema"
	case "42703":
		hint = fmt.Sprintf("the table %s is not of this driver, or of another version: apply pglock.Schema to a table that does not exist yet, or name another with table=", b.sql.table)
	case "25006":
		hint = "the server is a standby or read-only: connect to the primary, with several hosts in the URL if it may move"
	case "53300":
		hint = "lower pool_size, or raise max_connections"
	}
	if hint == "" {
		return fmt.Errorf("postgres: %w", err)
	}
	return fmt.Errorf("postgres: %w (%s)", err, hint)
}

// address names the server in errors.
func (b *Backend) address() string {
	return hosts(b.pool.Config().ConnConfig)
}

func hosts(c *pgx.ConnConfig) string {
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if h := fmt.Sprintf("%s:%d", f.Host, f.Port); h != hosts[len(hosts)-1] {
			hosts = append(hosts, h)
		}
	}
	return strings.Join(hosts, ",")
}

// ended is the error of a context that ended, or whose deadline has passed: a
// socket's deadline is set from it, and may be noticed first.
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

func isUncertain(err error) bool { return errors.Is(err, backend.ErrUncertain) }
