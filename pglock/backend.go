package pglock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
)

// Backend is the PostgreSQL driver. Make one with New or lock.Open.
type Backend struct {
	pool     *pgxpool.Pool
	own      bool // the pool was opened by us, and is closed by us
	opt      options
	sql      statements
	process  string // where others tell this process something
	listener *listener
	// pooled: a transaction pooler may give each statement another session, so that
	// none is prepared
	pooled bool

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // requests and goroutines

	mu       sync.Mutex
	closed   bool
	attempts map[string]*attempt // by owner: those that wait, and grants to be told of their loss
	// settled are attempts given up while they waited, each request of which had
	// its answer: Abandon needs no tombstone for them.
	settled map[string]struct{}
}

var (
	_ backend.Backend      = (*Backend)(nil)
	_ backend.Waiter       = (*Backend)(nil)
	_ backend.BatchRenewer = (*Backend)(nil)
	_ backend.Inspector    = (*Backend)(nil)
	_ backend.Lister       = (*Backend)(nil)
	_ backend.Breaker      = (*Backend)(nil)
	_ backend.Pinger       = (*Backend)(nil)
)

// New makes a backend of the caller's pool, which is never closed. It talks to
// the server, for a bounded time, to find or make the table. At the first wait it
// makes one more connection, with the settings of the pool, but outside of it.
func New(pool *pgxpool.Pool, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*o.timeout)
	defer cancel()
	return open(ctx, pool, o)
}

func open(ctx context.Context, pool *pgxpool.Pool, o options) (*Backend, error) {
	if pool == nil {
		return nil, backend.Invalid("pool", "nil", "a *pgxpool.Pool")
	}
	sql, err := newStatements(o.table)
	if err != nil {
		return nil, err
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	b := &Backend{
		pool: pool, opt: o, sql: sql, process: hex.EncodeToString(id[:]),
		attempts: map[string]*attempt{}, settled: map[string]struct{}{},
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.listener = newListener(b)
	if err := b.prepare(ctx); err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

// Capabilities says what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := backend.Capabilities{
		Name:               "postgres",
		Scope:              backend.ScopeNetwork,
		Loss:               backend.LossTTL,
		Order:              backend.FIFO,
		Wake:               backend.WakePush,
		Fencing:            backend.FencingRestart,
		MinTTL:             100 * time.Millisecond, // a third of it must outlast a round trip and a pause of the process
		WakesPerRelease:    1,
		HandOffCommands:    2,
		IdleWaiterCommands: 1.5, // of the first in the queue; the others ask less often
		Caveats: []string{
			"A standby that is promoted before it received the last writes, and a server that lost them in a crash with fsync off, forget locks: two may then hold one until the first one's lease ends, and only a check of the token at the resource, or Guard, tells them apart. With synchronous replication nothing is forgotten.",
			"Tokens rise over a failover or a restored backup as long as the clock of the server that takes over is not behind the moment of the last grant.",
			"A waiter that died delays the others by up to 3 s when its turn comes.",
			"If the holder and the first waiter die together, the next waiter notices it up to half a lease after the holder's lease has ended.",
			"The holder of a broken lock learns of it at its next renewal, unless its process has waited for a lock before.",
			fmt.Sprintf("A statement that the server executes more than %v after its attempt was abandoned is no longer refused.", tombstoneFor),
		},
	}
	if !b.opt.listen {
		c.Wake, c.WakesPerRelease, c.HandOffCommands, c.IdleWaiterCommands = backend.WakePoll, 0, 0, 0
		c.Caveats = append(c.Caveats, fmt.Sprintf("Without a connection to listen on, a waiter asks at intervals of up to %v.", slowestPoll))
	}
	return c
}

// polls says whether those who wait are told nothing, and have to ask.
func (b *Backend) polls() bool { return !b.opt.listen || b.listener.isDeaf() }

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.exec(ctx, "SELECT 1")
	return err
}

// Close ends the listening connection and waits, until ctx ends, for what is in
// flight. A pool that was given to New stays open.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.wg.Wait()
		if b.own {
			b.pool.Close()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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

// waiting are the attempts that wait.
func (b *Backend) waiting() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*attempt
	for _, a := range b.attempts {
		if a.waits {
			all = append(all, a)
		}
	}
	return all
}
