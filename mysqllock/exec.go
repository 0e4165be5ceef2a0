package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
)

// Numbers of errors, of both kinds of server.
const (
	errChanged         = 1020
	errLockWait        = 1205
	errDeadlock        = 1213
	errNoSuchTable     = 1146
	errReadOnly        = 1290 // read_only, super_read_only
	errReadOnlyTx      = 1792
	errReadOnlyEngine  = 1836
	errTableDenied     = 1142
	errColumnDenied    = 1143
	errAccessDenied    = 1045
	errDatabaseDenied  = 1044
	errNoDatabase      = 1046
	errBadDatabase     = 1049
	errSyntax          = 1064
	errUnknownVariable = 1193
	errDiskFull        = 1021
	errTableFull       = 1114

	errCommit      = 1180
	errShutdown    = 1053
	errInterrupted = 1317
	errKilled      = 1927
	errTimeLimit   = 1969
	errTimeLimitMy = 3024

	errIdle         = 4031 // wait_timeout
	errTooMany      = 1040 // max_connections
	errTooManyUser  = 1203 // max_user_connections
	errUserLimit    = 1226 // MAX_USER_CONNECTIONS of the user
	errUserDeadlock = 3058
)

// takenBack: a deadlock, which somebody else's transactions may cause, or MariaDB's
// innodb_snapshot_isolation, which at SERIALIZABLE refuses single statements too.
func takenBack(err error) bool {
	n := number(err)
	return n == errDeadlock || n == errChanged
}

// exec runs one statement that changes something, and returns how many rows it
// changed.
func (b *Backend) exec(ctx context.Context, q string) (int64, error) {
	var n int64
	err := b.run(ctx, func(ctx context.Context, c *sql.Conn) error {
		r, err := c.ExecContext(ctx, q)
		if err == nil {
			n, err = r.RowsAffected()
		}
		return classify(err)
	})
	if err != nil {
		return 0, err // n may still be written to
	}
	return n, nil
}

// run calls f with a connection. It returns as soon as ctx ends; what f has sent
// then finishes in the background, within the timeout, so that its connection can
// be used again. Nothing is sent while another connection is held.
func (b *Backend) run(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	return b.runOn(ctx, b.lend, f)
}

// lend is a connection of the pool and how to give it back. Where the server refuses
// another one it is an anchor's, or whichever is free first.
func (b *Backend) lend(ctx context.Context) (*sql.Conn, func(error), error) {
	pause := pace{most: 100 * time.Millisecond}
	for begun := time.Now(); ; {
		conn, err := b.connect(ctx)
		if err == nil {
			return conn, func(error) { _ = conn.Close() }, nil // to the pool, if it is still good
		}
		if !full(err) {
			return nil, nil, err
		}
		if a := b.bell.makeRoom(ctx); a != nil {
			return a.conn, func(err error) { b.bell.back(a, err) }, nil
		}
		switch {
		case b.life.Err() != nil:
			return nil, nil, backend.ErrClosed
		case time.Since(begun) > b.opt.timeout:
			return nil, nil, err
		}
		if !sleep(ctx, pause.failed()) {
			return nil, nil, ctx.Err()
		}
	}
}

// full: the server has as many connections as it may have.
func full(err error) bool {
	n := number(err)
	return n == errTooMany || n == errTooManyUser || n == errUserLimit
}

// runOn is run with a connection that each try is lent. What the server takes back
// because of other statements is sent again until the timeout, after pauses that grow:
// of those that meet on a row one gets through each time, so many at once need many tries.
func (b *Backend) runOn(ctx context.Context, lend func(context.Context) (*sql.Conn, func(error), error), f func(context.Context, *sql.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !b.enter() {
		return backend.ErrClosed
	}
	begun := time.Now()
	for try := 1; ; try++ {
		conn, back, err := lend(ctx)
		if err != nil {
			b.wg.Done()
			return err
		}
		done := make(chan error, 1)
		go func() {
			statement, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opt.timeout)
			err := f(statement, conn)
			cancel()
			back(err)
			b.wg.Done()
			done <- err
		}()
		select {
		case err = <-done:
		case <-ctx.Done():
			return backend.Uncertain(ctx.Err())
		}
		switch {
		case takenBack(err) && time.Since(begun) < b.opt.timeout:
			pause := time.Millisecond * time.Duration(min(try, 50))
			if try > 1 && !sleep(ctx, pause/2+rand.N(pause)) {
				return backend.Uncertain(ctx.Err())
			}
		case errors.Is(err, driver.ErrBadConn) && try < 3:
		default:
			return err
		}
		if !b.enter() {
			return err
		}
	}
}

// connect takes a connection from the pool. Until then nothing was sent.
func (b *Backend) connect(ctx context.Context) (*sql.Conn, error) {
	within, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer cancel()
	conn, err := b.db.Conn(within)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil:
		return nil, fmt.Errorf("mysql: no connection%s within %v", b.at, b.opt.timeout)
	}
	return nil, failure(err)
}

// relayed: an error of the client library, from which a proxy made one of the server.
// Its connection to that is lost, or of no use.
func relayed(n uint16) bool { return n >= 2000 && n < 3000 }

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// classify is the error of a failed statement, ErrUncertain if it may have been
// executed.
func classify(err error) error {
	if err == nil {
		return nil
	}
	switch n := number(err); n {
	case errCommit, errShutdown, errInterrupted, errKilled, errTimeLimit, errTimeLimitMy:
		return backend.Uncertain(failure(err))
	case 0:
		if !errors.Is(err, driver.ErrBadConn) { // of which nothing was written
			return backend.Uncertain(failure(err))
		}
	default:
		if relayed(n) {
			return backend.Uncertain(failure(err))
		}
	}
	return failure(err)
}

// classifyTwo is classify for a packet of two statements, the second of which
// reads: most errors may be those of the second, which takes no locks.
func (b *Backend) classifyTwo(err error) error {
	if b.share != "" { // the second takes locks too
		return backend.Uncertain(failure(err))
	}
	switch number(err) {
	case errLockWait, errDeadlock, errNoSuchTable, errReadOnly, errReadOnlyTx, errReadOnlyEngine, errDiskFull, errTableFull:
		return failure(err)
	case 0:
		return classify(err)
	}
	return backend.Uncertain(failure(err))
}

// failure explains an error of the server or of the client library.
func failure(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("mysql: %w", err) // it names the address
	}
	hint := ""
	switch number(err) {
	case errTableDenied, errColumnDenied, errDatabaseDenied, errAccessDenied:
		hint = " (what is needed stands in the documentation of package mysqllock, Permissions)"
	case errNoSuchTable:
		hint = " (the lock table was dropped)"
	case errNoDatabase:
		hint = " (name a database in the URL's path, or in table=database.table)"
	case errReadOnly, errReadOnlyTx, errReadOnlyEngine:
		hint = " (this server does not take writes; locks need the primary)"
	case errLockWait:
		hint = " (another transaction keeps the row of the lock locked)"
	case errTooMany, errTooManyUser, errUserLimit:
		hint = " (lower pool_size and bell_size, or let the server take more)"
	}
	return fmt.Errorf("mysql: %w%s", err, hint)
}

// enter registers work that Close waits for. It is false after Close.
func (b *Backend) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Add(1)
	return true
}

// state is how an attempt stands.
type state struct {
	owner, metadata string
	token           uint64
	expires, now    int64
	queue           string    // its beginning
	whole           bool      // all of it
	sent            time.Time // before it was read

	place int  // in the queue's bytes; 1 is the first, 0 is none
	gone  bool // abandoned
	named bool // it has its name now
	lost  bool // nothing is known: who waits has to look itself
}

func (s state) left() time.Duration { return time.Duration(s.expires-s.now) * time.Microsecond }

func (s state) held() bool { return s.expires > s.now }

func (s state) mine(owner string) bool { return s.owner == owner && s.held() }

// scanImage reads what image asks for, and more if there is more.
func scanImage(rows *sql.Rows, s *state, more ...any) error {
	if !rows.Next() {
		s.whole = true // there is no row
		return rows.Err()
	}
	if err := rows.Scan(append([]any{&s.owner, &s.token, &s.expires, &s.metadata, &s.queue, &s.whole, &s.now}, more...)...); err != nil {
		return err
	}
	return rows.Err()
}

// read asks how an attempt stands. Those who wait use half of the pool at most, so
// that they never keep a holder from its renewal.
func (b *Backend) read(ctx context.Context, req backend.Request) (state, error) {
	select {
	case b.looking <- struct{}{}:
		defer func() { <-b.looking }()
	case <-ctx.Done():
		return state{}, ctx.Err()
	case <-b.life.Done():
		return state{}, backend.ErrClosed
	}
	var s state
	err := b.run(ctx, func(ctx context.Context, c *sql.Conn) error {
		r, err := query(ctx, c, b.look(req, false))
		if err != nil {
			return failure(err)
		}
		s = r
		return nil
	})
	if err != nil {
		return state{}, err
	}
	return s, nil
}

func query(ctx context.Context, c *sql.Conn, q string) (state, error) {
	s := state{sent: time.Now()}
	rows, err := c.QueryContext(ctx, q)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	var named sql.NullBool
	err = scanImage(rows, &s, &s.place, &s.gone, &named)
	s.named = named.Bool
	return s, err
}

// ask sends a request to acquire and reads how the attempt stands after it, in one
// packet where the connection allows that.
func (b *Backend) ask(ctx context.Context, req backend.Request, join bool) (state, error) {
	if b.bell == nil {
		return b.askOn(ctx, func(context.Context) *anchor { return nil }, req, join)
	}
	take := b.bell.take
	if _, alive := b.bell.of(req.Owner); alive {
		take = func(context.Context) *anchor { return nil } // it has its name
	}
	busy := false
	s, err := b.askOn(ctx, func(ctx context.Context) *anchor {
		if busy {
			return nil
		}
		a := take(ctx)
		busy = a != nil
		return a
	}, req, join)
	if busy && number(err) == errLockWait {
		// somebody keeps the row locked for longer than an anchor may wait
		return b.askOn(ctx, func(context.Context) *anchor { return nil }, req, join)
	}
	return s, err
}

// askOn asks over an anchor that take returns, or else over the pool.
func (b *Backend) askOn(ctx context.Context, take func(context.Context) *anchor, req backend.Request, join bool) (state, error) {
	var s state
	var a *anchor
	change := b.acquire(req, join)
	err := b.runOn(ctx, func(ctx context.Context) (*sql.Conn, func(error), error) {
		if a = take(ctx); a == nil {
			return b.lend(ctx)
		}
		used := a
		return a.conn, func(err error) { b.bell.back(used, err) }, nil
	}, func(ctx context.Context, c *sql.Conn) error {
		look := b.look(req, a != nil)
		if a != nil {
			defer b.bell.ask(req.Owner)()
		}
		if b.multi {
			r, err := query(ctx, c, change+";"+look)
			if err != nil {
				return b.classifyTwo(err)
			}
			if r.named {
				b.bell.took(req.Owner, a)
			}
			s = r
			return nil
		}
		if _, err := c.ExecContext(ctx, change); err != nil {
			return classify(err)
		}
		r, err := query(ctx, c, look)
		if err != nil {
			return backend.Uncertain(failure(err))
		}
		s = r
		return nil
	})
	if err != nil {
		return state{}, err
	}
	return s, nil
}
