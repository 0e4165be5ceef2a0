package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// bell tells those who wait of their turn. Each attempt that is in a row has a
// named lock of the server (GET_LOCK) on its own id; whoever is behind it blocks in
// the server on that name, and its release, in the packet that changes the row,
// wakes them. The row alone says who holds: a bell that does not ring, or rings for
// nothing, costs another look.
//
// Sessions that have names never wait for one, and those that wait have none: so
// names cannot make a deadlock.
type bell struct {
	b       *Backend
	space   string // what names begin with: they are the server's, not the database's
	maria   bool
	anchors int // connections that have names, at most
	watches int // connections that wait for names, at most

	mu       sync.Mutex
	open     []*anchor
	opening  int
	noAnchor time.Time // no other is opened before
	noWatch  time.Time
	noRoom   time.Time          // the server was full shortly before
	frugal   time.Duration      // for how long the bell opened nothing then
	names    map[string]*anchor // by owner; of one that is dead the name may or may not be free
	asks     map[string]*asking
	keys     map[string]*watch
	running  int // watches
}

// asking is packets on their way that may take the name of an attempt.
type asking struct {
	packets int
	over    bool // the attempt left the row meanwhile: a name that is taken is freed at once
}

// anchor is a connection that has the names of many attempts.
type anchor struct {
	conn *sql.Conn
	turn chan struct{} // has a value while nobody uses conn

	late []string // owners whose names are to be released as soon as conn is free; guarded by bell.mu
	dead bool     // guarded by bell.mu
}

const (
	patience    = 250 * time.Millisecond // with anchors that are busy, for a new attempt
	ringWithin  = 100 * time.Millisecond // with the anchor of a release
	sulk        = 5 * time.Second        // after an anchor could not be opened
	leastFrugal = time.Second            // after the server refused a connection to somebody who does not wait
	mostFrugal  = time.Minute            // if it does so again and again
	anchorSetup = "SET SESSION wait_timeout=28800, innodb_lock_wait_timeout=1"
)

func newBell(b *Backend, database string, maria bool, anchors, watches int) *bell {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s.%s", database, b.table.name)
	return &bell{
		b: b, maria: maria, anchors: anchors, watches: watches,
		space: fmt.Sprintf("interlock.%08x.", h.Sum32()), // with an id 51 characters of the 64 that are allowed
		names: map[string]*anchor{}, asks: map[string]*asking{}, keys: map[string]*watch{},
	}
}

// name is the literal of the name of an attempt.
func (l *bell) name(owner string) string { return "'" + l.space + owner + "'" }

// take returns an anchor for a new attempt, or nil: it then goes without a name.
func (l *bell) take(ctx context.Context) *anchor {
	l.mu.Lock()
	for _, a := range slices.Clone(l.open) {
		select {
		case <-a.turn:
			l.mu.Unlock()
			if l.usable(ctx, a) {
				return a
			}
			l.mu.Lock()
		default:
		}
	}
	if len(l.open)+l.opening < l.anchors && time.Now().After(l.noAnchor) {
		l.opening++
		l.mu.Unlock()
		a := l.dial(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.opening--
		switch {
		case a == nil:
			if ctx.Err() == nil { // else it is the caller who could not wait
				l.noAnchor = later(l.noAnchor, sulk)
			}
			return nil
		case l.anchors == 0: // closed meanwhile, by a Close that could not wait
			discard(a.conn)
			return nil
		}
		l.open = append(l.open, a)
		return a
	}
	if len(l.open) == 0 {
		l.mu.Unlock()
		return nil
	}
	a := l.open[rand.N(len(l.open))]
	l.mu.Unlock()
	if !l.hold(ctx, a, patience) {
		return nil
	}
	return a
}

// makeRoom serves who got no connection because the server has too many: the bell
// opens no more for a while and ends those that wait. It returns an anchor, if one
// is free; its names are safe with any statement.
func (l *bell) makeRoom(ctx context.Context) *anchor {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	now := time.Now()
	if since := now.Sub(l.noRoom); since > mostFrugal {
		l.frugal = leastFrugal
	} else if since > 0 {
		l.frugal = min(2*l.frugal, mostFrugal) // the last time was too short
	}
	l.noRoom = now.Add(l.frugal)
	l.noAnchor, l.noWatch = later(l.noAnchor, l.frugal), later(l.noWatch, l.frugal)
	for _, w := range l.keys {
		if w.running {
			w.stop()
		}
	}
	l.mu.Unlock()
	return l.take(ctx)
}

// later is t, or in d if that is later.
func later(t time.Time, d time.Duration) time.Time {
	if u := time.Now().Add(d); u.After(t) {
		return u
	}
	return t
}

func (l *bell) dial(ctx context.Context) *anchor {
	conn, err := l.b.connect(ctx)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.b.opt.timeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, anchorSetup); err != nil {
		discard(conn)
		return nil
	}
	return &anchor{conn: conn, turn: make(chan struct{}, 1)} // its turn is taken
}

// hold waits for a certain anchor. It is false if that is dead or stays busy.
func (l *bell) hold(ctx context.Context, a *anchor, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-a.turn:
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
	return l.usable(ctx, a)
}

// usable tells whether an anchor whose turn was taken is still connected. If not its
// turn is over.
func (l *bell) usable(ctx context.Context, a *anchor) bool {
	l.mu.Lock()
	dead := a.dead
	l.mu.Unlock()
	if dead {
		a.turn <- struct{}{} // for the next one to find it so
		return false
	}
	// what the pool does before it lends a connection
	err := a.conn.Raw(func(c any) error {
		if r, ok := c.(driver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	})
	if err != nil {
		l.back(a, err)
	}
	return err == nil
}

// back is the end of a use of an anchor, which ended with err.
func (l *bell) back(a *anchor, err error) {
	var late []string
	for {
		l.mu.Lock()
		if broken(err) {
			late = append(late, a.late...)
			a.dead, a.late = true, nil
			l.open = slices.DeleteFunc(l.open, func(o *anchor) bool { return o == a })
			l.mu.Unlock()
			discard(a.conn)
			a.turn <- struct{}{}
			if len(late) > 0 {
				// the server may not know yet that this connection is gone
				l.b.background(func(ctx context.Context) {
					for _, owner := range late {
						l.callOut(ctx, owner)
					}
				})
			}
			return
		}
		late, a.late = a.late, nil
		if len(late) == 0 {
			a.turn <- struct{}{}
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), l.b.opt.timeout)
		q := "DO 0"
		for _, owner := range late {
			q += ",RELEASE_LOCK(" + l.name(owner) + ")"
		}
		if _, err = a.conn.ExecContext(ctx, q); err != nil {
			err = errNotFreed
		}
		cancel()
	}
}

// broken: the session is over, or may be, and with it all its names.
func broken(err error) bool {
	if err == nil {
		return false
	}
	switch n := number(err); n {
	case 0, errShutdown, errInterrupted, errKilled, errIdle:
		return true
	default:
		return relayed(n)
	}
}

// discard ends a connection instead of giving it back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

func (l *bell) of(owner string) (a *anchor, alive bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a = l.names[owner]
	return a, a != nil && !a.dead
}

// ask announces a packet that may take the name of an attempt. It is sent before
// done is called.
func (l *bell) ask(owner string) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.asks[owner]
	if p == nil {
		p = &asking{}
		l.asks[owner] = p
	}
	p.packets++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.packets--; p.packets == 0 {
			delete(l.asks, owner)
		}
	}
}

// took notes that a, which the caller uses, has the name of an attempt now.
func (l *bell) took(owner string, a *anchor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.asks[owner]; p != nil && p.over {
		a.late = append(a.late, owner) // the caller gives a back after this
		return
	}
	l.names[owner] = a
}

// left notes that an attempt is in no row any more. The caller has mu.
func (l *bell) left(owner string) {
	delete(l.names, owner)
	if p := l.asks[owner]; p != nil {
		p.over = true
	}
}

// ring wakes whoever waits for an attempt, after the row was changed over another
// connection than that of its name.
func (l *bell) ring(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.names[owner]
	l.left(owner)
	if a == nil {
		return
	}
	if a.dead {
		// the server may not know yet that this connection is gone
		l.b.background(func(ctx context.Context) { l.callOut(ctx, owner) })
		return
	}
	a.late = append(a.late, owner)
	select {
	case <-a.turn:
		if !l.b.background(func(context.Context) { l.back(a, nil) }) {
			a.turn <- struct{}{}
		}
	default: // who uses it sees to it
	}
}

// callOut frees the name of an attempt whose session does not: of a process whose
// lock was broken, or of a connection that was lost and is still there at the
// server. Every user may end sessions of his own; where the server refuses it those
// who wait look when the lease that they know of ends.
//
// It is one statement, so that the id is the server's that ends the session, and of
// who has the name at that moment: an id that came back to the client could be
// another session's by then, of another server behind a proxy or of the proxy itself.
func (l *bell) callOut(ctx context.Context, owner string) {
	_, _ = l.b.exec(ctx, "KILL IS_USED_LOCK("+l.name(owner)+")") // nobody has it: there is no session NULL
}

// giveUp changes the row of an attempt that leaves it, and wakes whoever is behind:
// in one packet, if the anchor with its name is free.
func (b *Backend) giveUp(ctx context.Context, owner, change string) (int64, error) {
	l := b.bell
	if l == nil {
		return b.exec(ctx, change)
	}
	if a, alive := l.of(owner); alive {
		n, err := l.changeAndRing(ctx, a, owner, change)
		if !errors.Is(err, errBusy) && number(err) != errLockWait {
			return n, err
		}
	}
	n, err := b.exec(ctx, change)
	if err == nil {
		l.ring(owner)
	}
	return n, err
}

var errBusy = errors.New("the anchor is of no use now")

func (l *bell) changeAndRing(ctx context.Context, a *anchor, owner, change string) (int64, error) {
	var n int64
	err := l.b.runOn(ctx, func(ctx context.Context) (*sql.Conn, func(error), error) {
		if !l.hold(ctx, a, ringWithin) {
			return nil, nil, errBusy
		}
		return a.conn, func(err error) { l.back(a, err) }, nil
	}, func(ctx context.Context, c *sql.Conn) error {
		var changed int64
		var freed sql.NullInt64
		err := c.QueryRowContext(ctx, change+";SELECT ROW_COUNT(),RELEASE_LOCK("+l.name(owner)+")").Scan(&changed, &freed)
		if err != nil {
			return l.b.classifyTwo(err)
		}
		l.mu.Lock()
		l.left(owner)
		l.mu.Unlock()
		n = changed
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// close ends the anchors' connections.
func (l *bell) close() {
	l.mu.Lock()
	open := l.open
	l.open, l.anchors = nil, 0
	clear(l.names)
	l.mu.Unlock()
	for _, a := range open {
		select {
		case <-a.turn:
			l.back(a, errClosing)
		default: // its statement ends within its timeout
			go func() { <-a.turn; l.back(a, errClosing) }()
		}
	}
}

var (
	errClosing  = errors.New("closing")
	errNotFreed = errors.New("names are still there") // whatever the reason: the end of the session frees them
)
