package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

// rowState is the row of a lock at the time of one read, for one attempt.
type rowState struct {
	owner, metadata string
	token           uint64
	expires, now    int64     // microseconds of the server's clock
	waiters         bool      // there may be some
	sent            time.Time // not after the server read the row

	abandoned bool   // a tombstone refuses the attempt
	place     int64  // of the attempt in the queue; 0: it is not there
	ahead     string // the attempt ahead of it in the queue, or the holder
	named     bool   // the connection owns its named lock

	unclaimed bool   // the grant was handed over and has not been renewed
	doomed    string // the processes that did not claim the grant before, with commas

	shares   bool          // readers or permits may hold the lock or wait for it
	shared   bool          // shared holders hold it
	last     string        // the last of those, for an exclusive request
	holders  []rowState    // those of this process and the first; only after Backend.readShares
	more     bool          // further waiters may fit
	first    int64         // place of the first waiter beside shared holders, or 0
	deadline int64         // of that waiter, or 0; see deadline.go
	present  backend.Share // the reason to refuse the attempt: it asked for another capacity
	share    backend.Share // of a shared holder
	slots    []int         // likewise
}

func (s rowState) left() time.Duration { return time.Duration(s.expires-s.now) * time.Microsecond }

func (s rowState) held() bool { return s.expires > s.now }

func (s rowState) heldBy(owner string) bool { return s.owner == owner && s.held() }

func (s rowState) holder() backend.Holder {
	if s.shared && len(s.holders) > 0 {
		s = s.holders[0]
	}
	return backend.Holder{
		Contender: backend.Contender{Owner: s.owner, Metadata: s.metadata, Share: s.share},
		Token:     s.token, Left: max(s.left(), 0), Slots: s.slots,
	}
}

// missing reports whether the lock has no row. It had one, which was deleted by hand, or the server is another one.
func (s rowState) missing() bool { return s.now == 0 }

// unread reports whether the lock has shared holders, of which s shows none.
func (s rowState) unread() bool { return s.expires == sharedEnd }

// forOwner returns the row of the shared holder owner, if it is one, or else s.
func (s rowState) forOwner(owner string) rowState {
	for _, h := range s.holders {
		if h.heldBy(owner) {
			h.sent, h.named = s.sent, s.named
			return h
		}
	}
	return s
}

// scanRow reads the result of a statement of Backend.read or Backend.readShares into s.
func scanRow(rows *sql.Rows, s *rowState) error {
	if columns, err := rows.Columns(); err != nil || columns[0] == "kind" {
		return errors.Join(err, scanShares(rows, s))
	}
	if !rows.Next() {
		return rows.Err() // there is no row
	}
	var named sql.NullBool
	err := rows.Scan(&s.owner, &s.token, &s.expires, &s.metadata, &s.now, &s.waiters, &s.abandoned, &s.place, &s.ahead, &named, &s.unclaimed, &s.doomed, &s.shares)
	s.named, s.shared = named.Bool, s.unread()
	if err != nil {
		return err
	}
	return rows.Err()
}

// queryRow sends a packet that ends with a statement of Backend.read or Backend.readShares. Its errors are classified.
func (b *Backend) queryRow(ctx context.Context, conn *sql.Conn, p packet) (rowState, error) {
	s := rowState{sent: time.Now()}
	rows, err := b.query(ctx, conn, p)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	return s, mark(scanRow(rows, &s), true)
}

// overPool sends such a packet over a connection of the pool.
func (b *Backend) overPool(ctx context.Context, p packet) (rowState, error) {
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (rowState, error) {
		return b.queryRow(ctx, c, p)
	})
}

// request sends a request to acquire and reads the row after it. It uses a lock connection if
// one is available, so that the attempt gets its named lock. build returns the request, with
// or without that.
func (b *Backend) request(ctx context.Context, owner string, build func(getName bool) packet) (rowState, error) {
	named := b.notifier != nil && b.notifier.connOf(owner) != nil
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
			if c == nil {
				return b.queryRow(ctx, conn, build(false))
			}
			restore := b.notifier.setOwner(owner, c)
			s, err := b.queryRow(ctx, conn, build(true))
			if !s.named {
				restore()
			}
			return s, err
		})
	}
	s, err := send()
	if usePool && !named && number(err) == errLockWait {
		return send() // a lock connection waits for a row for one second only
	}
	return s, err
}
