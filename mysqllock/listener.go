package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
)

const (
	longSleep  = 10 * time.Second       // of a listener that other processes wake
	shortSleep = 250 * time.Millisecond // of one that they do not, because they are other users of the server
	maxBackoff = time.Second            // before the next try to connect
	maxSeen    = 50                     // events that were read and are not deleted yet: to delete each is a commit each
)

// listener reads the events of the process, over a connection of its own that sleeps in the procedure listen. The
// connection owns the named lock of the process, by which others know that it can be reached, and whom to wake.
type listener struct {
	s       *service
	process string
	ctx     context.Context // ends with stop
	stop    func()

	mu      sync.Mutex    // guards the fields below
	live    bool          // the connection owns the named lock
	changed chan struct{} // closed when live or err changes
	err     error         // of the last failure
	end     func()        // ends the connection; nil if there is none
	// of the goroutine of run:
	sleep  time.Duration
	missed int // reads in a row that found events after a whole sleep: the process should have been woken
}

func newListener(s *service) *listener {
	l := &listener{s: s, process: s.process, changed: make(chan struct{}), sleep: longSleep}
	l.ctx, l.stop = context.WithCancel(s.life.Context())
	return l
}

// Use implements queue.Pusher. The process always listens.
func (s *service) Use(string) (stop func()) { return func() {} }

// Listening implements queue.Pusher.
func (s *service) Listening(string) bool {
	if s.listener == nil {
		return false
	}
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return s.listener.live
}

// Listen implements queue.Pusher.
func (s *service) Listen(ctx context.Context, _ string) error {
	l := s.listener
	if l == nil {
		return queue.ErrPoll
	}
	timeout := time.NewTimer(s.opt.timeout)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		live, changed, err := l.live, l.changed, l.err
		l.mu.Unlock()
		if live {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			if err == nil {
				err = errors.New("no answer")
			}
			return backend.NotExecuted(fmt.Errorf("mysql%s: the connection for events: %w", s.address, failure(err)))
		case <-ctx.Done():
			return ctx.Err()
		case <-s.life.Context().Done():
			return backend.ErrClosed
		}
	}
}

// Doubt implements queue.Pusher.
func (s *service) Doubt(string) { s.listener.replace() }

// replace ends the connection, which is restored. l may be nil.
func (l *listener) replace() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		l.end()
	}
}

// set records whether the process listens.
func (l *listener) set(live bool, err error) (was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was = l.live
	l.live, l.err = live, err
	close(l.changed)
	l.changed = make(chan struct{})
	return was
}

// run connects again and again, until stop or Close.
func (l *listener) run() {
	backoff := 10 * time.Millisecond
	for {
		err := l.listen()
		if l.ctx.Err() != nil {
			return
		}
		if l.set(false, err) {
			backoff = 10 * time.Millisecond
			l.s.events.Interrupted("")
		}
		call.Sleep(l.ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// listen listens until an error.
func (l *listener) listen() error {
	ctx, end := context.WithCancel(l.ctx)
	defer end()
	l.mu.Lock()
	l.end = end
	l.mu.Unlock()
	conn, err := l.connect(ctx, "")
	if err != nil {
		return err
	}
	defer discard(conn)
	if l.s.mariaDB { // see listen.sql
		other, err := l.connect(ctx, ".sleep")
		if err != nil {
			return err
		}
		defer discard(other)
	}
	old := l.s.schema.sql("DELETE e FROM `interlock_events` e WHERE e.process = '" + l.process + "'")
	if _, err = conn.ExecContext(ctx, old); err != nil {
		return err
	}
	var seen []string         // events that are still there
	pause := time.Duration(0) // the first call does not sleep
	for live, forget := false, false; ; {
		r, err := l.read(ctx, conn, seen, forget, pause)
		switch {
		case number(err) == errInterrupted: // woken
			l.missed = 0
			continue
		case err != nil:
			return err
		case !r.listening:
			return errors.New("the connection does not own its named lock")
		case !live:
			live = true
			l.set(true, nil)
		}
		if forget {
			seen = nil
		}
		for _, e := range r.events {
			seen = append(seen, strconv.FormatInt(e.id, 10))
			l.s.report(e)
		}
		forget = len(r.events) == 0 || len(seen) >= maxSeen
		pause = l.slept(r)
	}
}

// slept returns for how long to sleep after r. One event may come when the sleep ends by itself; after two that did not
// end it, others cannot wake this process.
func (l *listener) slept(r listened) time.Duration {
	switch {
	case r.slept && len(r.events) > 0:
		l.missed++
	case len(r.events) > 0:
		l.missed = 0
	}
	if l.missed > 1 {
		l.sleep = shortSleep
	}
	return l.sleep
}

// connect returns a connection that owns a named lock. One before it may still be there if the network has lost that.
func (l *listener) connect(ctx context.Context, lock string) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.opt.timeout)
	defer cancel()
	conn, err := l.s.connect(ctx)
	if err != nil {
		return nil, err
	}
	limits := "max_execution_time=0"
	if l.s.mariaDB {
		limits = "max_statement_time=0"
	}
	name := "'interlock." + l.process + lock + "'"
	var id sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK("+name+")").Scan(&id)
	if err == nil && id.Valid {
		if _, err = conn.ExecContext(ctx, fmt.Sprint("KILL ", id.Int64)); number(err) == errNoThread {
			err = nil
		}
	}
	for _, q := range []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET SESSION wait_timeout=28800, " + limits,
	} {
		if err == nil {
			_, err = conn.ExecContext(ctx, q)
		}
	}
	var owns sql.NullBool
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+",1)").Scan(&owns)
	}
	if err == nil && !owns.Bool {
		err = errors.New("another connection owns the named lock of this process")
	}
	if err != nil {
		discard(conn)
		return nil, err
	}
	return conn, nil
}

// event is a row of the table of events. Times are in microseconds.
type event struct {
	id, token, sent, lease int64
	kind, name, owner      string
	slots                  []byte
}

// listened is the result of the procedure listen.
type listened struct {
	slept, listening bool
	events           []event
}

// read calls the procedure listen.
func (l *listener) read(
	ctx context.Context, conn *sql.Conn, seen []string, forget bool, pause time.Duration,
) (r listened, err error) {
	ctx, cancel := context.WithTimeout(ctx, pause+l.s.opt.timeout)
	defer cancel()
	seconds := strconv.FormatFloat(pause.Seconds(), 'f', 3, 64)
	q := l.s.call("listen", lit(l.process), lit(strings.Join(seen, ",")), flag(forget), seconds, flag(l.s.mariaDB))
	rows, err := conn.QueryContext(ctx, q)
	if err != nil {
		return r, err
	}
	defer rows.Close()
	var slept int
	var owns sql.NullBool
	if !rows.Next() {
		return r, errors.Join(rows.Err(), sql.ErrNoRows)
	}
	if err = rows.Scan(&slept, &owns); err != nil {
		return r, err
	}
	r.slept, r.listening = slept > 0, owns.Bool
	if rows.NextResultSet() {
		for rows.Next() {
			var e event
			if err = rows.Scan(&e.id, &e.kind, &e.name, &e.owner, &e.token, &e.slots, &e.sent, &e.lease); err != nil {
				return r, err
			}
			r.events = append(r.events, e)
		}
	}
	if err = rows.Err(); number(err) == errInterrupted && len(r.events) > 0 {
		err = nil
	}
	return r, err
}

// report hands an event to the machine.
func (s *service) report(e event) {
	key, ours := strings.CutPrefix(e.name, s.key(""))
	if !ours {
		return
	}
	switch e.kind {
	case "granted":
		s.events.Granted(queue.Grant{
			Key: key, Owner: e.owner, Token: uint64(e.token), Slots: parseSlots(e.slots), Received: time.Now(),
			Expires: micros(e.sent + e.lease), TTL: micros(e.lease),
		})
	case "ends":
		s.events.LeaseEnds(e.owner, micros(e.lease))
	case "asked":
		s.events.Asked(key, e.owner)
	case "removed":
		s.events.Removed(key, e.owner)
	case "lost":
		s.events.Lost(e.owner)
	}
}
