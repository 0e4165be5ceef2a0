package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const (
	maxPacket  = 64                     // calls that are sent together
	guardPause = 100 * time.Millisecond // between calls for a holder that a transaction of Guard keeps
)

// answered is the reply to a call.
type answered struct {
	reply
	err error
}

func fail(n int, err error) []answered { return slices.Repeat([]answered{{err: err}}, n) }

// ask calls a procedure. acquire says that the call may use only the connections for that.
func (s *service) ask(ctx context.Context, q string, acquire bool) (reply, error) {
	r := s.repeatGuarded(ctx, q, s.send(ctx, []string{q}, acquire)[0])
	return r.reply, r.err
}

// askAll is ask for several calls, in as few requests as possible.
func (s *service) askAll(ctx context.Context, calls []string) []answered {
	all := make([]answered, 0, len(calls))
	for len(all) < len(calls) {
		n := 1
		if s.packets {
			n = min(len(calls)-len(all), maxPacket)
		}
		all = append(all, s.send(ctx, calls[len(all):len(all)+n], false)...)
	}
	for i, r := range all {
		all[i] = s.repeatGuarded(ctx, calls[i], r)
	}
	return all
}

// repeatGuarded repeats a call for as long as a transaction of Guard keeps the holder, until the timeout.
func (s *service) repeatGuarded(ctx context.Context, q string, r answered) answered {
	for end := time.Now().Add(s.opt.timeout); r.err == nil && r.status == guarded; {
		switch {
		case time.Now().After(end):
			r.err = backend.NotExecuted(fmt.Errorf("mysql%s: a transaction with Guard keeps the holder", s.address))
		case !sleep(ctx, guardPause):
			r.err = backend.NotExecuted(ctx.Err())
		default:
			r = s.send(ctx, []string{q}, false)[0]
		}
	}
	return r
}

// send sends calls in one request. It returns the replies to the first of them, one at least; the others were not
// executed.
func (s *service) send(ctx context.Context, calls []string, acquire bool) []answered {
	begun := time.Now()
	all, err := call.Detached(ctx, s.life, func(ctx context.Context, sending *call.Sending) ([]answered, error) {
		ctx = context.WithoutCancel(ctx)
		if acquire {
			if err := s.enter(ctx); err != nil {
				return nil, err
			}
			defer func() { <-s.acquiring }()
		}
		all := s.execute(ctx, sending, calls)
		return all, all[0].err
	})
	if err != nil && unanswered(ctx, begun) {
		s.life.Go(s.testIdle)
	}
	if err != nil {
		return fail(len(calls), err)
	}
	return all
}

// enter waits until the pool has a connection for one more request to acquire.
func (s *service) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.timeout)
	defer cancel()
	select {
	case s.acquiring <- struct{}{}:
		return nil
	case <-ctx.Done():
		return backend.NotExecuted(fmt.Errorf("mysql%s: no connection within %v", s.address, s.opt.timeout))
	}
}

// execute is send, without an end of the context.
//
// If the server rolled the statement back because of others, which happens in a cluster in which several nodes accept
// writes, it is sent again until the timeout, after growing pauses. So is what was not written to a broken
// connection; over a new connection, what a server refused because it is read-only now; and, once, what called a
// procedure that was dropped.
func (s *service) execute(ctx context.Context, sending *call.Sending, calls []string) []answered {
	begun := time.Now()
	last, created := fail(1, nil), false
	for try := 1; ; try++ {
		conn, err := s.connect(ctx)
		if err != nil {
			return fail(len(calls), stillUncertain(last[0].err, err))
		}
		if !sending.Write() {
			_ = conn.Close()
			return fail(len(calls), backend.NotExecuted(context.Canceled))
		}
		all := s.query(ctx, conn, calls)
		err = all[0].err
		all[0].err = stillUncertain(last[0].err, err)
		switch last = all; {
		case rolledBack(err) && time.Since(begun) < s.opt.timeout:
			pause := time.Millisecond * time.Duration(min(try, 50))
			sleep(ctx, pause/2+rand.N(pause))
		case (errors.Is(err, driver.ErrBadConn) || readOnly(err)) && try < 3:
		case number(err) == errNoProcedure && s.opt.create && !created:
			if err := s.createAgain(ctx); err != nil {
				return fail(len(calls), backend.NotExecuted(err))
			}
			created = true
		default:
			return all
		}
	}
}

// createAgain creates procedures that were dropped.
func (s *service) createAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.timeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err == nil {
		err = s.create(ctx, conn)
		s.finish(ctx, conn, err)
	}
	return err
}

// query sends calls over a connection, and returns that.
func (s *service) query(ctx context.Context, conn *sql.Conn, calls []string) []answered {
	statement, cancel := context.WithTimeout(ctx, s.opt.timeout)
	defer cancel()
	all := make([]answered, 0, len(calls))
	sent := time.Now()
	rows, err := conn.QueryContext(statement, strings.Join(calls, ";"))
	if err == nil {
		for more := true; more; more = rows.NextResultSet() {
			r := answered{reply: reply{sent: sent}}
			if err = r.scan(rows); err != nil {
				break
			}
			all = append(all, r)
		}
		if err == nil {
			err = rows.Err()
		}
		_ = rows.Close() // err has said it
	}
	s.finish(statement, conn, err)
	if err == nil && len(all) < len(calls) {
		err = noRow(nil)
	}
	switch {
	case len(all) == len(calls): // an error after that does not matter
		return all
	case number(err) == 0 || len(all) == 0:
		err = classify(err)
		if statement.Err() != nil && number(err) == 0 { // not the deadline of the caller
			err = backend.Uncertain(fmt.Errorf("mysql%s: no answer within %v", s.address, s.opt.timeout))
			s.testIdle()
		}
		return append(all, fail(len(calls)-len(all), err)...)
	}
	return all // the server has executed none behind an error
}

// finish returns a connection to the pool. After an error its session may have a transaction that holds locks.
func (s *service) finish(ctx context.Context, conn *sql.Conn, err error) {
	switch n := number(err); {
	case err == nil, n == errNoProcedure, n == errDeadlock, n == errLockWait: // the handler in rule.sql has ended it
		_ = conn.Close()
	case readOnly(err):
		discard(conn)
		s.closeIdle(ctx) // before the next try
	default:
		discard(conn)
	}
}

// stillUncertain returns err as ErrUncertain if an earlier try of the statement may have been executed.
func stillUncertain(earlier, err error) error {
	if err != nil && errors.Is(earlier, backend.ErrUncertain) && !errors.Is(err, backend.ErrUncertain) {
		return backend.Uncertain(err)
	}
	return err
}

// connect takes a connection from the pool, within the timeout. If the server refuses another one, connect waits for
// one that another request returns.
func (s *service) connect(ctx context.Context) (*sql.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, s.opt.timeout)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		conn, err := s.db.Conn(bounded)
		switch {
		case err == nil:
			return conn, nil
		case s.life.Context().Err() != nil:
			return nil, backend.ErrClosed
		case ctx.Err() != nil:
			return nil, backend.NotExecuted(ctx.Err())
		case bounded.Err() != nil:
			return nil, backend.NotExecuted(fmt.Errorf("mysql%s: no connection within %v", s.address, s.opt.timeout))
		case !serverFull(err) || !sleep(bounded, pause):
			return nil, backend.NotExecuted(failure(err))
		}
	}
}

// discard closes a connection instead of returning it to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
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
