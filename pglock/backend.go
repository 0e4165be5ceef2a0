package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// Backend is the PostgreSQL driver, made by New or lock.Open. It is safe for
// concurrent use.
type Backend struct {
	*queue.Backend
	svc *service
}

var (
	_ backend.Backend        = (*Backend)(nil)
	_ backend.Waiter         = (*Backend)(nil)
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

// NewService returns the service that New makes a backend of. It reports its events to events, also
// a loss that it has not confirmed, and does not sweep. It is for tests of the rule, see package queuetest.
func NewService(ctx context.Context, pool *pgxpool.Pool, events queue.Events, opts ...Option) (queue.Service, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	sql, err := newStatements(o.table)
	if err != nil {
		return nil, err
	}
	s := newService(pool, o, sql)
	s.events, s.trusting = events, true
	if err := s.setUp(ctx); err != nil {
		s.life.Stop()
		return nil, err
	}
	return s, nil
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
	svc := newService(pool, o, sql)
	b := &Backend{Backend: queue.New(svc), svc: svc}
	svc.events = b.Backend
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := svc.setUp(within); err != nil {
		svc.life.Stop()
		if within.Err() != nil && ctx.Err() == nil { // not the caller's deadline
			err = fmt.Errorf("postgres at %s: no answer within %v", svc.address(), limit)
		}
		return nil, err
	}
	svc.life.Go(svc.sweepUnused)
	return b, nil
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
		PushesLoss: b.svc.opt.always,
		Shared:     true,
		Permits:    true,
		MinTTL:     100 * time.Millisecond, // a third of it must outlast a round trip and a pause of the process
		MaxTTL:     100 * 24 * time.Hour,   // as on MySQL; far from any overflow
		Lateness:   tombstoneTTL,
		Caveats: []string{
			"A standby that is promoted before it received the last writes, and a server that lost them in a crash with fsync off, forget locks. Until the lease of the first holder ends, two clients may then hold one lock, and only a check of the token at the resource, or Guard, stops the first one. With synchronous replication no lock is forgotten.",
			"Tokens rise over a failover or a restored backup as long as the clock of the new server is not behind the time of the last grant.",
			"A step forward of the server's clock ends leases early by as much, and a second holder may be granted the lock. Slew the clock of the server and do not step it.",
			"A process with waiters that died delays the others by up to 3 s at its turn. Of several such processes in a row each further one delays them by up to 0.75 s. If its waiter does not fit beside shared holders, it delays the shares behind it by up to 3 s if they come later, and by up to 6 s if they wait already.",
			"If the holder and the first waiter die together, the next waiter notices it when the lease ends that it knows of.",
			"A role that may connect to the database can send notifications: it can make waiters ask more often, and no more.",
			fmt.Sprintf("A statement that the server executes more than %v after its attempt was abandoned is not refused.", tombstoneTTL),
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if !b.svc.opt.always {
		c.Caveats = append(c.Caveats, "The holder of a broken lock learns of it at its next renewal, unless its process waits for a lock or did within a minute.")
	}
	if !b.svc.opt.listen {
		c.Wake = backend.WakePoll
		c.Caveats = append(c.Caveats, fmt.Sprintf("Without a listening connection a waiter polls at intervals of up to %v.", 500*time.Millisecond))
	}
	return c
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.svc.exec(ctx, "SELECT 1")
	return err
}

// ReportStatus sets the function that is called once when notifications from the
// server are interrupted, with the error, and once with nil when they are restored.
func (b *Backend) ReportStatus(report func(what string, err error)) {
	b.svc.listener.mu.Lock()
	b.svc.listener.report = report
	b.svc.listener.mu.Unlock()
	b.svc.listener.reportStatus()
}
