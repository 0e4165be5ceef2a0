package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
)

// listener keeps the listening connection, which receives the notifications to this
// process. The first waiter starts it; it is outside of the pool. It ends with Close, or a minute
// after the last wait: each NOTIFY wakes all sessions of the database that listen. With
// WithListenAlways it starts with the backend and ends with Close only.
type listener struct {
	s *service

	mu          sync.Mutex // guards the fields below
	users       int        // calls of Acquire
	unused      time.Time  // since when there are none
	running     bool
	up          bool                    // notifications arrive
	unavailable bool                    // notifications never arrive: a pooler came between
	err         error                   // of the last failure; nil while it is up
	changed     chan struct{}           // closed when up or err changes
	disconnect  context.CancelCauseFunc // ends the connection; set while it is up
	interrupt   func()                  // ends a wait for a notification; the connection is then checked
	report      func(what string, err error)

	reporting sync.Mutex // orders the calls of report
	reported  bool       // guarded by reporting: the last call had an error
}

func newListener(s *service) *listener {
	return &listener{s: s, unused: time.Now(), changed: make(chan struct{}), disconnect: func(error) {}, interrupt: func() {}}
}

const (
	listenTimeout = 5 * time.Second // to connect and to see that notifications arrive
	maxUnused     = time.Minute     // until the listener ends
)

// use keeps the listener until unuse.
func (l *listener) use() {
	l.mu.Lock()
	l.users++
	l.mu.Unlock()
}

func (l *listener) unuse() {
	l.mu.Lock()
	l.users--
	l.unused = time.Now()
	l.mu.Unlock()
}

// end ends the listener a minute after the last wait.
func (l *listener) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s.opt.always || l.users > 0 || time.Since(l.unused) < maxUnused {
		return false
	}
	l.up, l.running = false, false
	return true
}

// status returns whether notifications arrive, and whether they never will.
func (l *listener) status() (up, unavailable bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.unavailable
}

// wait starts the listener and waits until notifications arrive or never will. It
// returns an error after listenTimeout, or at once if the server refuses.
func (l *listener) wait(ctx context.Context) error {
	l.mu.Lock()
	if !l.running && !l.unavailable && l.s.life.Enter() {
		l.running = true
		go func() {
			defer l.s.life.Leave()
			l.run()
		}()
	}
	l.mu.Unlock()
	timeout := time.NewTimer(listenTimeout)
	defer timeout.Stop()
	for first := true; ; first = false {
		l.mu.Lock()
		done, changed, err := l.up || l.unavailable, l.changed, l.err
		l.mu.Unlock()
		if done {
			return nil
		}
		// At first err may be old. Class 57 is a server that starts or stops.
		if s := sqlState(err); (!first || tooManyConnections(err)) && s != "" && s[:2] != "57" {
			return err
		}
		select {
		case <-changed:
		case <-timeout.C:
			if err == nil {
				err = errors.New("postgres: no answer to LISTEN")
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-l.s.life.Context().Done():
			return backend.ErrClosed
		}
	}
}

// set records that the listener is up, or that it failed with err.
func (l *listener) set(up bool, err error) {
	l.mu.Lock()
	l.up, l.err, l.unavailable = up, err, errors.Is(err, errNotDelivered) && l.s.opt.direct == nil
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	l.reportStatus()
}

// reportStatus calls report if the listener has failed, or is up again, since the last call.
func (l *listener) reportStatus() {
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	report, err := l.report, l.err
	l.mu.Unlock()
	if report == nil || l.reported == (err != nil) {
		return
	}
	l.reported = err != nil
	if err != nil {
		report("notifications from PostgreSQL are interrupted, waiters poll", err)
	} else {
		report("notifications from PostgreSQL are restored", nil)
	}
}

// run listens, and connects again after each failure, until Close or until a pooler
// delivers no notifications: an application can be moved behind a pooler, and the mode
// of a pooler can change.
func (l *listener) run() {
	s := l.s
	backoff := 10 * time.Millisecond
	for s.life.Context().Err() == nil {
		wasUp, err := l.listen()
		if s.life.Context().Err() != nil || errors.Is(err, errUnused) {
			return
		}
		switch {
		case errors.Is(err, errYielded):
			backoff = time.Second
		case wasUp:
			backoff = 10 * time.Millisecond
		}
		l.set(false, s.describe(fmt.Errorf("listening: %w", err)))
		s.events.Interrupted("") // waiters notice whether the server still answers
		if _, unavailable := l.status(); unavailable || l.end() {
			return
		}
		call.Sleep(s.life.Context(), backoff)
		backoff = min(2*backoff, time.Second)
	}
}

// listen receives notifications until the connection fails.
func (l *listener) listen() (wasUp bool, err error) {
	s := l.s
	conn, err := l.connect()
	if err != nil {
		return false, err
	}
	defer closeConn(conn)
	ctx, stop := context.WithCancelCause(s.life.Context())
	defer stop(nil)
	l.mu.Lock()
	l.disconnect, l.interrupt = stop, func() {}
	l.mu.Unlock()
	l.set(true, nil)
	s.events.Interrupted("") // there were no notifications before LISTEN
	for {
		within, cancel := context.WithTimeout(ctx, maxUnused/4)
		l.mu.Lock()
		l.interrupt = cancel
		l.mu.Unlock()
		n, err := conn.WaitForNotification(within)
		timedOut := within.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			s.receive(n.PID, n.Payload)
		case !timedOut || conn.IsClosed():
			return true, errors.Join(err, context.Cause(ctx))
		case !answers(ctx, conn, 2*answerTime):
			return true, errors.New("the connection does not answer")
		}
		if l.end() {
			return true, errUnused
		}
	}
}

// check makes the listener check its connection.
func (l *listener) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		l.interrupt()
	}
}

// closeConn closes a connection and waits for that, for at most 1 s.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it has failed, or is not needed any more
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

var errUnused = errors.New("no attempt waits")

var errYielded = errors.New("the server accepts no more connections")

var errDoubted = errors.New("a notification did not arrive")

// drop ends the connection. After errYielded the next one is opened a second later, so that a pool without any can
// connect.
func (l *listener) drop(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		l.disconnect(cause)
	}
}

// connect opens a connection outside of the pool, as one that listens.
func (s *server) connect(ctx context.Context) (*pgx.Conn, error) {
	var cfg *pgx.ConnConfig
	if s.opt.direct != nil {
		cfg = s.opt.direct.Copy()
	} else {
		pool := s.pool.Config()
		cfg = pool.ConnConfig
		if pool.BeforeConnect != nil {
			if err := pool.BeforeConnect(ctx, cfg); err != nil {
				return nil, err
			}
		}
	}
	cfg.OnNotification = nil // would receive them instead
	return pgx.ConnectConfig(ctx, cfg)
}

// connect opens a connection on which notifications to this process arrive.
func (l *listener) connect() (*pgx.Conn, error) {
	s := l.s
	ctx, cancel := context.WithTimeout(s.life.Context(), listenTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	listen := "LISTEN " + channelPrefix + s.process
	if s.opt.direct != nil || !s.opt.pooled.Load() { // of a pooler the session would keep it
		listen += "; SET idle_session_timeout = 0"
	}
	_, err = conn.Exec(ctx, listen, pgx.QueryExecModeSimpleProtocol)
	if err == nil && s.opt.pooled.Load() {
		err = l.checkDelivery(ctx, conn)
	}
	if err != nil {
		_ = conn.Close(ctx) // err matters
		return nil, err
	}
	return conn, nil
}

// Use implements queue.Pusher.
func (s *service) Use(string) (stop func()) {
	s.listener.use()
	return s.listener.unuse
}

// Listening implements queue.Pusher.
func (s *service) Listening(string) bool {
	up, _ := s.listener.status()
	return up
}

// Listen implements queue.Pusher.
func (s *service) Listen(ctx context.Context, _ string) error {
	if !s.opt.listen {
		return queue.ErrPoll
	}
	err := s.listener.wait(ctx)
	if _, unavailable := s.listener.status(); unavailable || tooManyConnections(err) {
		return queue.ErrPoll // the pool has the last connection that the server allows
	}
	if err != nil && !errors.Is(err, backend.ErrClosed) {
		return backend.NotExecuted(s.describe(err))
	}
	return err
}

// Doubt implements queue.Pusher.
func (s *service) Doubt(string) { s.listener.drop(errDoubted) }
