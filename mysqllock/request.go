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
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const (
	maxMany   = 64                     // operations of a transaction
	spacing   = 500 * time.Microsecond // as in call.NewBatches
	busyPause = 100 * time.Millisecond // between requests for a row that another transaction keeps
)

// answered is the reply to a call.
type answered struct {
	reply
	err error
}

func fail(n int, err error) []answered { return slices.Repeat([]answered{{err: err}}, n) }

// ask calls a procedure that answers once. For as long as a transaction of Guard keeps the holder it is called again, until
// the timeout.
func (s *service) ask(ctx context.Context, q string) (reply, error) {
	return s.unguarded(ctx, func() answered { return s.send(ctx, q, 1)[0] })
}

// unguarded calls f, again while a transaction of Guard keeps the holder.
func (s *service) unguarded(ctx context.Context, f func() answered) (reply, error) {
	end := time.Now().Add(s.opt.timeout)
	for {
		r := f()
		switch {
		case r.err != nil || r.status != busy:
			return r.reply, r.err
		case time.Now().After(end):
			return r.reply, backend.NotExecuted(fmt.Errorf("mysql%s: a transaction with Guard keeps the holder", s.address))
		case !call.Sleep(ctx, busyPause):
			return r.reply, backend.NotExecuted(ctx.Err())
		}
	}
}

// askAll sends operations in as few requests as possible. No key delays the others: those of keys whose rows are locked
// are sent again, for each key alone.
func (s *service) askAll(ctx context.Context, ops []operation) []answered {
	if !slices.ContainsFunc(ops, func(o operation) bool { return o.key != ops[0].key }) {
		return s.askKey(ctx, ops)
	}
	all := s.many(ctx, ops, false)
	again := make(map[string][]int)
	for i, r := range all {
		if r.err == nil && r.status == busy {
			again[ops[i].key] = append(again[ops[i].key], i)
		}
	}
	var keys sync.WaitGroup
	for _, at := range again {
		keys.Go(func() {
			some := make([]operation, len(at))
			for j, i := range at {
				some[j] = ops[i]
			}
			for j, r := range s.askKey(ctx, some) {
				all[at[j]] = r
			}
		})
	}
	keys.Wait()
	return all
}

// askKey sends operations for one key, and waits for its row.
func (s *service) askKey(ctx context.Context, ops []operation) []answered {
	all := slices.Repeat([]answered{{reply: reply{status: busy}}}, len(ops))
	for _, request := range []func(context.Context, []operation) []answered{s.renew, s.several, s.each} {
		var at []int
		var rest []operation
		for i, r := range all {
			if r.err == nil && r.status == busy {
				at, rest = append(at, i), append(rest, ops[i])
			}
		}
		for i, r := range request(ctx, rest) {
			all[at[i]] = r
		}
	}
	return all
}

// renew sends renewals of share holders of one key. It returns nothing if they are no such ones.
func (s *service) renew(ctx context.Context, ops []operation) []answered {
	other := func(o operation) bool {
		return o.kind != "renew" || o.ttl != ops[0].ttl || checkOwner(o.owner) != nil // which is not escaped below
	}
	if len(ops) < 2 || slices.ContainsFunc(ops, other) {
		return nil
	}
	owners := make([]string, len(ops))
	for i, o := range ops {
		owners[i] = `"` + o.owner + `"`
	}
	q := s.call("renew", lit(ops[0].key), lit(s.process), "'["+strings.Join(owners, ",")+"]'", micro(ops[0].ttl))
	all := s.send(ctx, q, 1+len(ops))
	all[1].pass = all[0].pass
	return all[1:]
}

// several sends operations for one key in as few requests as possible.
func (s *service) several(ctx context.Context, ops []operation) []answered {
	if len(ops) < 2 {
		return nil
	}
	return s.many(ctx, ops, true)
}

// each sends every operation by itself.
func (s *service) each(ctx context.Context, ops []operation) []answered {
	all := make([]answered, len(ops))
	for i, o := range ops {
		all[i].reply, all[i].err = s.do(ctx, s.others, o)
	}
	return all
}

// many sends operations, several in a transaction.
func (s *service) many(ctx context.Context, ops []operation, wait bool) []answered {
	all := make([]answered, 0, len(ops))
	for some := range slices.Chunk(ops, maxMany) {
		all = append(all, s.send(ctx, s.severalIn(some, wait), len(some))...)
	}
	return all
}

// send calls a procedure that answers n times, within the timeout. Either it has executed all, or each answer has the error.
func (s *service) send(ctx context.Context, q string, n int) []answered {
	all, err := within(ctx, s, func(ctx context.Context) ([]answered, error) {
		return call.Detached(ctx, s.life, func(ctx context.Context, sending *call.Sending) ([]answered, error) {
			return s.execute(context.WithoutCancel(ctx), sending, q, n)
		})
	})
	if err != nil {
		return fail(n, err)
	}
	return all
}

// within calls f, which sends a request, with a context that ends at the timeout.
func within[T any](ctx context.Context, s *service, f func(context.Context) (T, error)) (T, error) {
	begun := time.Now()
	bounded := new(call.Context)
	bounded.Init(ctx, ctx, begun.Add(s.opt.timeout))
	defer bounded.End(context.Canceled)
	r, err := f(bounded)
	if err == nil {
		return r, nil
	}
	if unanswered(bounded, begun) {
		s.life.Go(s.testIdle)
	}
	if call.Ended(ctx) == nil && bounded.Err() != nil {
		err = s.timedOut(err)
	}
	return r, err
}

// timedOut returns the error of a request that failed with err at the timeout. It does not match an error of the caller's
// context.
func (s *service) timedOut(err error) error {
	unknown := backend.OutcomeUnknown(err)
	var refusal *mysql.MySQLError
	switch {
	case errors.As(err, &refusal):
		err = refusal
	case unknown:
		err = fmt.Errorf("mysql%s: no answer within %v", s.address, s.opt.timeout)
	default:
		err = fmt.Errorf("mysql%s: no connection within %v", s.address, s.opt.timeout)
	}
	return mark(err, unknown)
}

// execute is send, without an end of the context.
//
// If the server rolled the statement back because of others, which happens in a cluster in which several nodes accept
// writes, it is sent again until the timeout, after growing pauses. So is what was not written to a broken
// connection; over a new connection, what a server refused because it is read-only now; and, once, what called a
// procedure that was dropped.
func (s *service) execute(ctx context.Context, sending *call.Sending, q string, n int) ([]answered, error) {
	begun := time.Now()
	var last error
	created := false
	for try := 1; ; try++ {
		conn, err := s.connect(ctx)
		if err != nil {
			return nil, stillUncertain(last, err)
		}
		if !sending.Write() {
			_ = conn.Close()
			return nil, backend.NotExecuted(context.Canceled)
		}
		all, err := s.query(ctx, conn, q, n)
		last = stillUncertain(last, err)
		switch {
		case rolledBack(err) && time.Since(begun) < s.opt.timeout:
			pause := time.Millisecond * time.Duration(min(try, 50))
			call.Sleep(ctx, pause/2+rand.N(pause))
		case (errors.Is(err, driver.ErrBadConn) || readOnly(err)) && try < 3:
		case number(err) == errNoProcedure && s.opt.create && !created:
			if err := s.createAgain(ctx); err != nil {
				return nil, backend.NotExecuted(err)
			}
			created = true
		default:
			return all, last
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

// query sends a call over a connection, and returns that when the server has answered, or the connection is closed; see
// watchLate. The transaction ends behind the answers.
func (s *service) query(ctx context.Context, conn *sql.Conn, q string, n int) ([]answered, error) {
	statement, end := context.WithCancel(ctx)
	defer end()
	replied := s.watchLate(statement, end)
	all, err := answers(statement, conn, q, n)
	replied()
	s.finish(statement, conn, err)
	if err == nil {
		return all, nil
	}
	if statement.Err() != nil && number(err) == 0 {
		return nil, backend.Uncertain(fmt.Errorf("mysql%s: no answer", s.address))
	}
	return nil, classify(err)
}

func answers(ctx context.Context, conn *sql.Conn, q string, n int) ([]answered, error) {
	all := make([]answered, 0, n)
	sent := time.Now()
	rows, err := conn.QueryContext(ctx, q)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for {
		some, err := replies(rows)
		if err != nil {
			return nil, err
		}
		for _, r := range some {
			r.sent = sent
			all = append(all, answered{reply: r})
		}
		more := rows.NextResultSet()
		switch {
		case rows.Err() != nil:
			return nil, rows.Err()
		case len(all) == n:
			return all, nil
		case !more:
			return nil, sql.ErrNoRows
		}
	}
}

// finish returns a connection to the pool. After an error its session may have a transaction that holds locks.
func (s *service) finish(ctx context.Context, conn *sql.Conn, err error) {
	switch n := number(err); {
	case err == nil, n == errNoProcedure, n == errDeadlock, n == errLockWait: // the handler of the procedure has ended it
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
		case !serverFull(err) || !call.Sleep(bounded, pause):
			return nil, backend.NotExecuted(failure(err))
		}
	}
}

// discard closes a connection instead of returning it to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
