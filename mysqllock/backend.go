package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
)

// Backend is the MySQL and MariaDB driver. New and lock.Open return one. Its methods may be called concurrently.
type Backend struct {
	*queue.Backend
	svc *service
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

// New returns a backend that uses the caller's pool and never closes it. New reads the settings of the server, and
// checks the tables and the procedures, within a bounded time.
//
// The connections need autocommit and the default of transaction_read_only; New names the setting that it refuses. A
// pool of one connection is enough to poll. With four, the server wakes waiters, over one that the driver keeps, on
// MariaDB two.
func New(db *sql.DB, opts ...Option) (*Backend, error) {
	s, err := newService(db, opts)
	if err != nil {
		return nil, err
	}
	return s.open(context.Background(), 3*s.opt.timeout)
}

// NewService returns the queue.Service that New makes a Backend of. It reports its events to events.
func NewService(db *sql.DB, events queue.Events, opts ...Option) (queue.Service, error) {
	s, err := newService(db, opts)
	if err != nil {
		return nil, err
	}
	s.events = events
	if err := s.start(context.Background(), 3*s.opt.timeout); err != nil {
		return nil, err
	}
	return s, nil
}

func newService(db *sql.DB, opts []Option) (*service, error) {
	s := &service{db: db, opt: defaults(), life: call.NewLife(), answering: newAnswering(pingPooled(db))}
	for _, opt := range opts {
		if err := opt(&s.opt); err != nil {
			return nil, err
		}
	}
	if db == nil {
		return nil, backend.Invalid("db", "nil", "a *sql.DB")
	}
	t, err := parseTable(s.opt.table)
	s.schema = newSchema(t)
	return s, err
}

// open makes a Backend of the service, and starts it.
func (s *service) open(ctx context.Context, limit time.Duration) (*Backend, error) {
	b := &Backend{Backend: queue.New(s), svc: s}
	s.events = b.Backend
	if err := s.start(ctx, limit); err != nil {
		return nil, err
	}
	return b, nil
}

// start reads the settings of the server, prepares the tables and the procedures, and listens, all within a limit.
func (s *service) start(ctx context.Context, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := s.probe(within)
	if err == nil {
		err = s.connectEvents(within)
	}
	if err != nil {
		_ = s.life.Close(ctx)                        // err is more important
		if within.Err() != nil && ctx.Err() == nil { // not the deadline of the caller
			err = fmt.Errorf("mysql%s: no answer within %v", s.address, limit)
		}
		return err
	}
	s.life.Go(s.sweepUnused)
	return nil
}

// connectEvents decides whether the process listens or polls.
func (s *service) connectEvents(ctx context.Context) error {
	conns := s.db.Stats().MaxOpenConnections
	listens := s.opt.notify && !s.multiPrimary && s.denied == nil && (conns <= 0 || conns >= minPool)
	if conns <= 0 {
		conns = 20
	}
	if listens {
		conns -= listenerConns
	}
	s.acquires = call.NewBatches(s.life, max(1, conns-conns/4), maxMany, spacing, s.sendBatch)
	s.others = call.NewBatches(s.life, conns, maxMany, spacing, s.sendBatch)
	s.process = fmt.Sprintf("p%016x", rand.Uint64())
	if !listens {
		return nil
	}
	s.process = "l" + s.process[1:]
	s.listener = newListener(s)
	s.life.Go(s.listener.run)
	if s.readOnly { // it listens when the next connections reach the primary
		return nil
	}
	// now, so that the first wait costs nothing more, and holders learn of a break
	if err := s.Listen(ctx, ""); err != nil {
		return err
	}
	return s.confirm(ctx)
}

const (
	listenerConns = 2                 // of a listener at most
	minPool       = listenerConns + 2 // of the smallest pool in which a process listens
)

// confirm makes the process poll if the connections of others would not find that of the listener: a proxy may be
// between.
func (s *service) confirm(ctx context.Context) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var found sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK('interlock."+s.process+"')").Scan(&found)
	if err == nil && !found.Valid {
		s.listener.stop()
		s.listener, s.process = nil, "p"+s.process[1:]
	}
	return failure(err)
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := backend.Capabilities{
		Name:       "mysql",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossTTL,
		Order:      backend.FIFO,
		Wake:       backend.WakePoll,
		Fencing:    backend.FencingRestart,
		PushesLoss: b.svc.listener != nil,
		MinTTL:     500 * time.Millisecond, // a third of it must outlast a request and a pause of the process
		MaxTTL:     100 * 24 * time.Hour,
		Lateness:   tombstoneTTL,
		Shared:     true,
		Permits:    true,
		Caveats: []string{
			"With asynchronous or semi-synchronous replication a failover may lose the last grants. Two clients may then hold a lock until the first lease ends; only a check of the token at the resource, or Guard, stops the first.",
			"Tokens rise over a restart, a failover and the loss of the table if the clock of the new server is not behind the time of the last grant.",
			"A step forward of the server's clock ends leases early by as much, and a second holder may be granted the lock. Slew the clock of the server and do not step it.",
			fmt.Sprintf("The waiters of a process that ended or was stopped delay those behind them by at most %v together, when the turn of the first one comes. A process that was stopped for so long, or whose connection for events ended, loses its places in the queue.", queue.ProvisionalTTL),
			fmt.Sprintf("A request is no longer refused if the network delivers it more than %v after its attempt was abandoned.", tombstoneTTL),
			"All clients must use the same server or group of servers: writes to several primaries at once (Galera, multi-primary group replication) exclude each other only by failing at commit. A proxy must send calls of procedures to the primary.",
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if b.svc.flush != 1 {
		c.Caveats = append(c.Caveats, fmt.Sprintf("The server runs with innodb_flush_log_at_trx_commit=%d: a crash may lose the grants of the last second; their holders find out at their next renewal only.", b.svc.flush))
	}
	if b.svc.listener != nil {
		c.Wake = backend.WakePush
		c.Caveats = append(c.Caveats, fmt.Sprintf("A process does not wake the waiters of another user of the server unless its user has the privilege CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN). They read events up to %v late, notice that after the second time, and look for them every %v then.", longSleep, shortSleep))
	} else {
		c.Caveats = append(c.Caveats, "The holder of a broken lock learns of it at its next renewal.")
	}
	return c
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := read(ctx, b.svc, func(ctx context.Context, c *sql.Conn) (struct{}, error) { return struct{}{}, c.PingContext(ctx) })
	return err
}
