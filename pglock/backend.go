package pglock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
)

// Backend is the PostgreSQL driver, made by New or lock.Open. It is safe for
// concurrent use.
type Backend struct {
	pool     *pgxpool.Pool
	ownsPool bool // Close closes the pool
	opt      options
	sql      statements
	process  string // random; names the channel of this process
	secret   []byte // random; see secretOf
	listener *listener
	fixPlans bool // each transaction sets what its plans depend on, also one of a single statement

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // requests and goroutines

	checkingIdle atomic.Bool // checkIdle runs

	mu       sync.Mutex // guards the fields below
	closed   bool
	attempts map[string]*attempt    // by owner id; see attemptState
	lines    map[string]*line       // by key, while it has attempts
	watched  map[string]*time.Timer // by key: when watch looks at it

	// Slots of requests to acquire. The other connections are for renewals and releases.
	acquiring chan struct{}

	// Slots of statements that a notification causes. Any role can send notifications.
	hints chan struct{}
}

var (
	_ backend.Backend        = (*Backend)(nil)
	_ backend.Waiter         = (*Backend)(nil)
	_ backend.BatchRenewer   = (*Backend)(nil)
	_ backend.BatchAbandoner = (*Backend)(nil)
	_ backend.Inspector      = (*Backend)(nil)
	_ backend.Lister         = (*Backend)(nil)
	_ backend.Breaker        = (*Backend)(nil)
	_ backend.Pinger         = (*Backend)(nil)
	_ backend.StatusReporter = (*Backend)(nil)
)

// New returns a backend that uses pool and never closes it. New looks for the table
// and creates it if it is missing; it returns within twice the timeout of WithTimeout.
// The first waiter opens one more connection, outside of the pool, with its settings.
func New(pool *pgxpool.Pool, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	return open(context.Background(), 2*o.timeout, pool, o)
}

func open(ctx context.Context, limit time.Duration, pool *pgxpool.Pool, o options) (*Backend, error) {
	if pool == nil {
		return nil, backend.Invalid("pool", "nil", "a *pgxpool.Pool")
	}
	if o.always && !o.listen {
		return nil, backend.Invalid("listening", "false and always", "one of them")
	}
	sql, err := newStatements(o.table)
	if err != nil {
		return nil, err
	}
	b := newBackend(context.Background(), pool, o, sql)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := b.setUp(within); err != nil {
		b.cancel()
		if within.Err() != nil && ctx.Err() == nil { // not the caller's deadline
			err = fmt.Errorf("postgres at %s: no answer within %v", b.address(), limit)
		}
		return nil, err
	}
	if o.retention > 0 {
		b.wg.Go(b.sweepUnused)
	}
	return b, nil
}

func newBackend(ctx context.Context, pool *pgxpool.Pool, o options, sql statements) *Backend {
	id, secret := make([]byte, 8), make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(secret)
	b := &Backend{pool: pool, opt: o, sql: sql, process: hex.EncodeToString(id), secret: secret, attempts: map[string]*attempt{}, lines: map[string]*line{}, watched: map[string]*time.Timer{}, hints: make(chan struct{}, maxHints)}
	conns := int(pool.Config().MaxConns)
	b.acquiring = make(chan struct{}, max(1, conns-max(1, conns/4)))
	b.ctx, b.cancel = context.WithCancel(ctx)
	b.listener = newListener(b)
	return b
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := backend.Capabilities{
		Name:       "postgres",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossTTL,
		Order:      backend.FIFO,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingRestart,
		PushesLoss: b.opt.always,
		Shared:     true,
		Permits:    true,
		MinTTL:     100 * time.Millisecond, // a third of it must outlast a round trip and a pause of the process
		MaxTTL:     100 * 24 * time.Hour,   // as on MySQL; far from any overflow
		Lateness:   tombstoneTTL,
		Caveats: []string{
			"A standby that is promoted before it received the last writes, and a server that lost them in a crash with fsync off, forget locks. Until the lease of the first holder ends, two clients may then hold one lock, and only a check of the token at the resource, or Guard, stops the first one. With synchronous replication no lock is forgotten.",
			"Tokens rise over a failover or a restored backup as long as the clock of the new server is not behind the time of the last grant.",
			"A step forward of the server's clock ends leases early by as much, and a second holder may be granted the lock. Slew the clock of the server and do not step it.",
			"A process with waiters that died delays the others by up to 3 s at its turn, all such processes together by a TTL and 3 s. If its waiter does not fit beside shared holders, it delays the shares behind that by up to 3 s if they come later, and by up to 6 s if they wait already.",
			"If the holder and the first waiter die together, the next waiter notices it when the lease ends that it knows of.",
			"A role that may connect to the database can send notifications: it can make waiters ask more often, and no more.",
			fmt.Sprintf("A statement that the server executes more than %v after its attempt was abandoned is not refused.", tombstoneTTL),
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if !b.opt.always {
		c.Caveats = append(c.Caveats, "The holder of a broken lock learns of it at its next renewal, unless its process waits for a lock or did within a minute.")
	}
	if !b.opt.listen {
		c.Wake = backend.WakePoll
		c.Caveats = append(c.Caveats, fmt.Sprintf("Without a listening connection a waiter polls at intervals of up to %v.", maxPollInterval))
	}
	return c
}

// polling reports whether waiters get no notifications and have to poll.
func (b *Backend) polling() bool {
	_, unavailable := b.listener.status()
	return unavailable || !b.opt.listen
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	_, _, err := b.exec(ctx, do("SELECT 1"))
	return err
}

// ReportStatus sets the function that is called once when notifications from the
// server are interrupted, with the error, and once with nil when they are restored.
func (b *Backend) ReportStatus(report func(what string, err error)) {
	b.listener.mu.Lock()
	b.listener.report = report
	b.listener.mu.Unlock()
	b.listener.reportStatus()
}

// Close ends the listening connection. It then waits, until ctx ends, for requests in
// flight. It does not close a pool that was given to New.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	for _, timer := range b.watched {
		timer.Stop()
	}
	b.mu.Unlock()
	b.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.wg.Wait()
		if b.ownsPool {
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

// enter registers work that Close waits for. It returns false after Close.
func (b *Backend) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Add(1)
	return true
}
