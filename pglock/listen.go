package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/interlock-go/lock/backend"
)

// listener is the connection on which this process is told things. It is made at
// the first wait, outside of the pool, and kept until Close.
type listener struct {
	b *Backend

	mu      sync.Mutex
	started bool
	up      bool
	before  bool          // it was up or failed: pushes may have been missed since
	stop    func()        // ends the connection
	changed chan struct{} // closed when up or err changes
	err     error         // of the last failure
	deaf    bool          // for good: a pooler came between, and who waits polls
}

const confirmTime = 5 * time.Second // listening that is not confirmed by then failed

func newListener(b *Backend) *listener { return &listener{b: b, changed: make(chan struct{})} }

// live says whether what is notified now reaches this process.
func (l *listener) live() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// isDeaf says whether listening has turned out to be in vain.
func (l *listener) isDeaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf
}

// wait returns when the listener is live or deaf, or with the error that keeps it
// from being so: at once if the server refuses, else after some time of trying.
func (l *listener) wait(ctx context.Context) error {
	timeout := time.NewTimer(confirmTime)
	defer timeout.Stop()
	for first := true; ; first = false {
		l.mu.Lock()
		settled, changed, err := l.up || l.deaf, l.changed, l.err
		if !l.started && !l.deaf && l.b.enter() {
			l.started, l.err = true, nil
			err = nil
			go func() {
				defer l.b.wg.Done()
				l.run()
			}()
		}
		l.mu.Unlock()
		if settled {
			return nil
		}
		var pg *pgconn.PgError
		if (!first || full(err)) && errors.As(err, &pg) && pg.Code[:2] != "57" {
			return err // it will not change soon
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
		case <-l.b.life.Done():
			return backend.ErrClosed
		}
	}
}

func (l *listener) set(up bool, err error) (before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.before
	l.up, l.err, l.before = up, err, true
	close(l.changed)
	l.changed = make(chan struct{})
	return before
}

// run listens, and connects anew after each failure, until Close or until nothing
// can be heard where the pool is: whatever was found out at opening, an application
// can be moved behind a pooler, or a pooler can be set to transactions.
func (l *listener) run() {
	b := l.b
	backoff := 10 * time.Millisecond
	for b.life.Err() == nil {
		up, err := l.listen()
		if b.life.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, errYielded):
			backoff = time.Second
		case up:
			backoff = 10 * time.Millisecond
		}
		deaf := errors.Is(err, errDeaf) && b.opt.direct == nil
		l.mu.Lock()
		l.deaf = deaf
		l.mu.Unlock()
		l.set(false, b.failure(fmt.Errorf("listening: %w", err)))
		b.pollNow() // who waits notices whether the server still answers
		if deaf {
			return
		}
		sleep(b.life, backoff)
		backoff = min(2*backoff, time.Second)
	}
}

// listen receives until the connection fails.
func (l *listener) listen() (up bool, err error) {
	b := l.b
	conn, err := l.connect()
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // failed already, or of no consequence
		select {
		case <-conn.PgConn().CleanupDone():
		case <-ctx.Done():
		}
	}()
	ctx, stop := context.WithCancelCause(b.life)
	defer stop(nil)
	l.mu.Lock()
	l.stop = func() { stop(errYielded) }
	l.mu.Unlock()
	// what was missed is asked for after the server listens, not before
	if l.set(true, nil) {
		b.pollNow()
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, errors.Join(err, context.Cause(ctx))
		}
		b.receive(n.Payload)
	}
}

var errYielded = errors.New("the server takes no more connections")

// yield ends the connection, for a while, in favour of a pool that has none.
func (l *listener) yield() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		l.stop()
	}
}

func (l *listener) connect() (*pgx.Conn, error) {
	b := l.b
	ctx, cancel := context.WithTimeout(b.life, confirmTime)
	defer cancel()
	var cfg *pgx.ConnConfig
	if b.opt.direct != nil {
		cfg = b.opt.direct.Copy()
	} else {
		pool := b.pool.Config()
		cfg = pool.ConnConfig
		if pool.BeforeConnect != nil {
			if err := pool.BeforeConnect(ctx, cfg); err != nil {
				return nil, err
			}
		}
	}
	cfg.OnNotification = nil // it would get what is for us
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "LISTEN "+channel+b.process, pgx.QueryExecModeSimpleProtocol)
	if err == nil && b.pooled {
		err = l.confirm(ctx, conn)
	}
	if err != nil {
		_ = conn.Close(ctx) // err is the one that matters
		return nil, err
	}
	return conn, nil
}

var errDeaf = errors.New("postgres: what is notified through the pool does not arrive where this process listens")

// confirm makes sure that what the pool notifies arrives here: a transaction pooler
// takes LISTEN and delivers nothing, and another address may be of another server.
//
// What arrives while nothing is asked, twice in a row, proves it. The server delivers
// before it answers whatever was asked after the NOTIFY, so what has not arrived by
// then never will. If it comes with that answer a pooler may have lent us the right
// session just then: once more, with more patience.
func (l *listener) confirm(ctx context.Context, conn *pgx.Conn) error {
	patience, proofs := 50*time.Millisecond, 0
	for n := 1; ; n++ {
		text := fmt.Sprint("heard ", n)
		if _, err := l.b.exec(ctx, "SELECT pg_notify($1, $2)", channel+l.b.process, text); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, patience)
		err := heard(within, conn, text)
		late := within.Err() != nil
		cancel()
		switch {
		case err == nil:
			if proofs++; proofs == 2 {
				return nil
			}
			continue
		case !late, ctx.Err() != nil:
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT 1", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		over, cancel := context.WithCancel(ctx)
		cancel() // only what is here already
		if heard(over, conn, text) != nil {
			return errDeaf
		}
		patience, proofs = 2*patience, 0
	}
}

// heard waits for what confirm has sent.
func heard(ctx context.Context, conn *pgx.Conn, text string) error {
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Payload == text {
			return err
		}
	}
}

// tryListening finds out, at opening, whether to listen where that may not work.
func (b *Backend) tryListening() error {
	if !b.opt.listen || !b.pooled {
		return nil
	}
	conn, err := b.listener.connect()
	switch {
	case err == nil:
		ctx, cancel := context.WithTimeout(b.life, time.Second)
		defer cancel()
		_ = conn.Close(ctx) // it has done what it was for
	case b.opt.direct != nil:
		return b.failure(fmt.Errorf("listening at %s: %w", hosts(b.opt.direct), err))
	case errors.Is(err, errDeaf):
		b.opt.listen = false
	default:
		return b.failure(fmt.Errorf("listening: %w", err))
	}
	return nil
}
