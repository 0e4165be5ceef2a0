package mysqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/interlock-go/lock/backend"
)

// rowState is the row of a key at the time of one read.
type rowState struct {
	owner, metadata string
	token           uint64
	expires, now    int64     // microseconds of the server's clock
	queue           string    // its first maxQueueRead bytes
	complete        bool      // queue is the whole queue
	sent            time.Time // not after the server read the row

	// What the read was asked for one attempt:
	place     int  // its offset in the queue, from 1; 0: it is not in the queue
	abandoned bool // a tombstone refuses it
	named     bool // the connection owns its named lock
}

func (s rowState) left() time.Duration { return time.Duration(s.expires-s.now) * time.Microsecond }

func (s rowState) held() bool { return s.expires > s.now }

func (s rowState) heldBy(owner string) bool { return s.owner == owner && s.held() }

func (s rowState) holder() backend.Holder {
	return backend.Holder{
		Contender: backend.Contender{Owner: s.owner, Metadata: unescaper.Replace(s.metadata)},
		Token:     s.token, Left: max(s.left(), 0),
	}
}

// readRow executes a statement of selectRow.
func readRow(ctx context.Context, c *sql.Conn, q string) (rowState, error) {
	s := rowState{sent: time.Now()}
	rows, err := c.QueryContext(ctx, q)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	return s, scanRow(rows, &s)
}

// scanRow reads the result of a statement of selectRow into s.
func scanRow(rows *sql.Rows, s *rowState) error {
	if !rows.Next() {
		s.complete = true // there is no row
		return rows.Err()
	}
	var named sql.NullBool
	err := rows.Scan(&s.owner, &s.token, &s.expires, &s.metadata, &s.queue, &s.complete, &s.now, &s.place, &s.abandoned, &named)
	s.named = named.Bool
	if err != nil {
		return err
	}
	return rows.Err()
}

// read reads the row for an attempt that waits. Such reads use at most half of the pool, so
// that they do not delay renewals.
func (b *Backend) read(ctx context.Context, req backend.Request) (rowState, error) {
	select {
	case b.readSlots <- struct{}{}:
		defer func() { <-b.readSlots }()
	case <-ctx.Done():
		return rowState{}, ctx.Err()
	case <-b.life.Done():
		return rowState{}, backend.ErrClosed
	}
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (rowState, error) {
		s, err := readRow(ctx, c, b.selectRow(req.Key, req.Owner, false))
		return s, failure(err)
	})
}

// request sends a request to acquire and reads the row after it, in one packet if the
// connection allows that. It uses a lock connection if one is available, so that the
// attempt gets its named lock. With join the attempt enters the queue.
func (b *Backend) request(ctx context.Context, req backend.Request, join bool) (rowState, error) {
	named := b.notifier != nil && b.notifier.connOf(req.Owner) != nil
	var c *lockConn // of the current try
	usePool := named
	source := func(ctx context.Context) (*sql.Conn, func(error), error) {
		if c = nil; !usePool {
			c = b.notifier.checkout(ctx)
		}
		if c == nil {
			return b.poolConn(ctx)
		}
		usePool = true // for another try
		return c.conn, c.checkin, nil
	}
	send := func() (rowState, error) {
		return run(ctx, b, source, func(ctx context.Context, conn *sql.Conn) (rowState, error) {
			return b.requestOver(ctx, conn, c, req, join)
		})
	}
	s, err := send()
	if usePool && !named && number(err) == errLockWait {
		return send() // a lock connection waits for a row for one second only
	}
	return s, err
}

// requestOver is one try of request over conn, which is that of c if c is not nil.
func (b *Backend) requestOver(ctx context.Context, conn *sql.Conn, c *lockConn, req backend.Request, join bool) (rowState, error) {
	change, read := b.acquire(req, join), b.selectRow(req.Key, req.Owner, c != nil)
	if !b.multiStatements {
		if _, err := conn.ExecContext(ctx, change); err != nil {
			return rowState{}, classify(err)
		}
		s, err := readRow(ctx, conn, read)
		return s, mark(err, true)
	}
	restore := func() {}
	if c != nil {
		restore = b.notifier.setOwner(req.Owner, c)
	}
	s, err := readRow(ctx, conn, change+";"+read)
	if !s.named {
		restore()
	}
	return s, b.classifyTwo(err)
}
