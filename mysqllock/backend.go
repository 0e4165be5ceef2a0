package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Backend is the MySQL and MariaDB driver. New and lock.Open return one. Its methods are
// safe for concurrent use.
type Backend struct {
	db              *sql.DB
	ownDB           bool   // Close closes db
	address         string // for errors: " at host:port", or empty
	opt             options
	table           table
	multiStatements bool // a packet may have two statements
	mariaDB         bool
	flush           int           // innodb_flush_log_at_trx_commit of the server
	sharing         bool          // the server has what shares need
	lockingRead     string        // a clause for reads that could see uncommitted rows, or empty
	notifier        *notifier     // nil: waiters poll
	process         string        // identifies this Backend in rows
	denied          error         // the user may not acquire locks
	acquiring       chan struct{} // requests to acquire in flight: the other connections are kept for renewals and releases

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // statements in flight

	testing atomic.Bool // testIdle runs

	mu         sync.Mutex // guards the fields below
	closed     bool
	lines      map[string]*line       // by key
	waiting    map[string]*attempt    // in the lines, by owner id
	leftovers  map[string]leftover    // of failed attempts, by owner id
	handedOver map[string]*time.Timer // by key: a look at it, see watchHandOver
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

const maxLockConns = 5

// New returns a backend that uses the caller's pool and never closes it. New reads the
// settings of the server and checks the table, within a bounded time.
//
// The connections need autocommit and the defaults of transaction_read_only, sql_select_limit and
// sql_big_selects, and on MariaDB neither SIMULTANEOUS_ASSIGNMENT nor EMPTY_STRING_IS_NULL in
// their sql_mode; New names the setting that it refuses. A pool of one connection is enough to poll. With four connections, and
// multiStatements=true in the DSN, the server wakes waiters. multiStatements=true also saves
// a round trip in each acquisition.
func New(db *sql.DB, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	if db == nil {
		return nil, backend.Invalid("db", "nil", "a *sql.DB")
	}
	return open(context.Background(), 3*o.timeout, db, o, "", false)
}

// open opens a backend within a limit.
func open(ctx context.Context, limit time.Duration, db *sql.DB, o options, address string, ownDB bool) (*Backend, error) {
	t, err := parseTable(o.table)
	if err != nil {
		return nil, err
	}
	b := &Backend{db: db, ownDB: ownDB, opt: o, address: address, table: t, process: fmt.Sprintf("%016x", rand.Uint64()),
		lines: map[string]*line{}, waiting: map[string]*attempt{}, leftovers: map[string]leftover{}, handedOver: map[string]*time.Timer{}}
	b.life, b.end = context.WithCancel(context.Background())
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	server, err := b.probe(within)
	if err != nil {
		b.end()
		if within.Err() != nil && ctx.Err() == nil { // not the deadline of the caller
			err = fmt.Errorf("mysql%s: no answer within %v", address, limit)
		}
		return nil, err
	}
	conns := db.Stats().MaxOpenConnections
	if conns <= 0 {
		conns = 4 * max(maxLockConns, o.notifyConns)
	}
	// Of the caller's pool a quarter may own named locks, and another quarter may wait for them.
	lockConns, waitConns := min(maxLockConns, conns/4), min(o.notifyConns, conns/4)
	if ownDB {
		lockConns, waitConns = min(maxLockConns, o.notifyConns), o.notifyConns // beside pool_size
	}
	if lockConns > 0 && waitConns > 0 && b.multiStatements && !server.multiPrimary {
		b.notifier = newNotifier(b, server.database, lockConns, waitConns)
		conns -= lockConns + waitConns
	}
	b.acquiring = make(chan struct{}, max(1, conns-conns/4))
	if o.retention > 0 {
		b.wg.Go(b.sweepUnused)
	}
	return b, nil
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := backend.Capabilities{
		Name:     "mysql",
		Scope:    backend.ScopeNetwork,
		Loss:     backend.LossTTL,
		Order:    backend.FIFO,
		Wake:     backend.WakePoll,
		Fencing:  backend.FencingRestart,
		MinTTL:   500 * time.Millisecond, // a provisional lease of that length must outlast several polls of a waiter
		MaxTTL:   100 * 24 * time.Hour,
		Lateness: tombstoneFor,
		Shared:   b.sharing,
		Permits:  b.sharing,
		Caveats: []string{
			"With asynchronous or semi-synchronous replication a failover may lose the last grants. Two clients may then hold a lock until the first lease ends; only a check of the token at the resource, or Guard, stops the first.",
			"Tokens rise over a restart, a failover and the loss of the table if the clock of the new server is not behind the time of the last grant.",
			"A step forward of the server's clock ends leases early by as much, and a second holder may be granted the lock. Slew the clock of the server and do not step it.",
			fmt.Sprintf("The waiters of a process that ended or was stopped delay those behind them by at most %v together, when the turn of the first one comes; beside readers or permits that stay, a share that comes later by at most %[1]v, and one that waits by twice that.", provisionalTTL),
			fmt.Sprintf("A request is no longer refused if the network delivers it more than %v after its attempt was abandoned.", tombstoneFor),
			"The holder of a broken lock learns of it at its next renewal.",
			"All clients must use the same server or group of servers: writes to several primaries at once (Galera, multi-primary group replication) exclude each other only by failing at commit. A proxy must send reads, too, to the primary: on a replica a waiter reads a row that lags, by another clock.",
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if b.flush != 1 {
		c.Caveats = append(c.Caveats, fmt.Sprintf("The server runs with innodb_flush_log_at_trx_commit=%d: a crash may lose the grants of the last second; their holders find out at their next renewal only.", b.flush))
	}
	if !b.multiStatements {
		c.Caveats = append(c.Caveats, "Without multiStatements a process that is stopped while it enters or leaves a queue keeps the row of the lock locked until its connection ends: no client can renew, release or acquire the lock meanwhile.")
	}
	if b.notifier != nil {
		c.Wake = backend.WakePush
		c.Caveats = append(c.Caveats,
			fmt.Sprintf("If a waiter is stopped and the server keeps its connection (SIGSTOP, a machine that is cut off), and its user is another one, the waiters behind it wait, when its turn comes, until the lease of its predecessor would have ended, at most %v. A user of the server who knows the owner id of an attempt can cause the same by owning its named lock.", maxWait),
			"Waiters for permits that other permits keep out are not woken by the server: they read the row, every 5 to 50 ms at first, later up to every 250 ms.",
			"If the lock connection of an attempt is lost, the waiters behind it poll up to eight times a second until its turn has ended.")
	}
	return c
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (struct{}, error) {
		return struct{}{}, failure(c.PingContext(ctx))
	})
	return err
}

// Close waits until ctx ends for statements in flight. It closes the pool unless the caller
// gave it to New.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	for _, timer := range b.handedOver {
		timer.Stop()
	}
	b.mu.Unlock()
	b.end()
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.notifier.close()
	if b.ownDB {
		_ = b.db.Close()
	}
	return err
}
