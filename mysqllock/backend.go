package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Backend is the MySQL and MariaDB driver. Make one with New or lock.Open.
type Backend struct {
	db    *sql.DB
	own   bool // opened by us, closed by us
	at    string
	opt   options
	table table
	multi bool   // two statements fit into one packet
	share string // a locking clause, where reads could see what was not committed
	bell  *bell  // nil: who waits polls
	// looking has room for as many waiters as may look at once
	looking chan struct{}
	caps    backend.Capabilities

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // statements in flight

	mu     sync.Mutex
	closed bool
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

// bellSize is how many connections of a pool of our own have names, and how many wait
// for them.
func bellSize(bell int) (anchors, watches int) { return min(maxAnchors, bell), bell }

const (
	maxLooking = 16
	maxAnchors = 5
)

// New makes a backend of the caller's pool, which it never closes. It talks to
// the server, for a bounded time, to look at its settings and at the table. A
// pool of one connection is enough, to poll; with four, and multiStatements=true in
// the DSN, the server wakes those who wait. The connections need autocommit, and on
// MariaDB no SIMULTANEOUS_ASSIGNMENT in their sql_mode; multiStatements=true also
// saves a round trip in each acquisition.
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
	ctx, cancel := context.WithTimeout(context.Background(), 3*o.timeout)
	defer cancel()
	return open(ctx, db, o, "", false)
}

func open(ctx context.Context, db *sql.DB, o options, at string, own bool) (*Backend, error) {
	t, err := parseTable(o.table)
	if err != nil {
		return nil, err
	}
	b := &Backend{db: db, own: own, opt: o, at: at, table: t, settled: map[string]struct{}{}}
	b.life, b.end = context.WithCancel(context.Background())
	found, err := b.probe(ctx)
	if err != nil {
		b.end()
		return nil, err
	}
	most := db.Stats().MaxOpenConnections
	if most <= 0 {
		most = 4 * max(maxAnchors, o.bell)
	}
	// Of a pool that is not ours a quarter may have names, and another may wait for them.
	anchors, watches := min(maxAnchors, most/4), min(o.bell, most/4)
	if own {
		anchors, watches = bellSize(o.bell) // beside the others
	}
	if anchors > 0 && watches > 0 && b.multi && !found.several {
		b.bell = newBell(b, found.database, found.maria, anchors, watches)
		most -= anchors + watches
	}
	b.looking = make(chan struct{}, max(1, min(maxLooking, most/2)))
	b.caps = b.capabilities(found.caveats)
	if b.bell != nil && found.resends {
		b.caps.HandOffCommands += 2 // and a look to find out
	}
	return b, nil
}

// found is what the probe learns of the server.
type found struct {
	database string
	maria    bool
	several  bool // nodes that take writes: names are known to one of them only
	resends  bool // single statements are taken back because of others, and sent again
	caveats  []string
}

// probe looks at the server and at the table, on one connection.
func (b *Backend) probe(ctx context.Context) (f found, err error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return f, err
	}
	defer conn.Close()
	var mode, isolation, version string
	var database sql.NullString
	var autocommit, flush int
	read := func(isolationName string) error {
		return conn.QueryRowContext(ctx, "SELECT @@autocommit, @@sql_mode, @@"+isolationName+", @@innodb_flush_log_at_trx_commit, VERSION(), DATABASE()").
			Scan(&autocommit, &mode, &isolation, &flush, &version, &database)
	}
	// MySQL 8 has the first name, MariaDB before 11.1 the second
	if err = read("transaction_isolation"); number(err) == errUnknownVariable {
		err = read("tx_isolation")
	}
	if err != nil {
		return f, failure(err)
	}
	switch {
	case autocommit != 1:
		return f, fmt.Errorf("%w connections: autocommit is off; a lock has to be committed at once", backend.ErrInvalid)
	case strings.Contains(mode, "SIMULTANEOUS_ASSIGNMENT"):
		return f, fmt.Errorf("%w connections: sql_mode has SIMULTANEOUS_ASSIGNMENT; the statements rely on the standard order", backend.ErrInvalid)
	}
	if strings.EqualFold(isolation, "READ-UNCOMMITTED") {
		b.share = " LOCK IN SHARE MODE"
	}
	if flush != 1 {
		f.caveats = append(f.caveats, fmt.Sprintf("The server runs with innodb_flush_log_at_trx_commit=%d: when it crashes it may forget the grants of the last second, which their holders notice at their next renewal only.", flush))
	}
	f.maria = strings.Contains(strings.ToLower(version), "mariadb")
	f.resends = f.maria && strings.EqualFold(isolation, "SERIALIZABLE")
	if f.database = b.table.database; f.database == "" {
		f.database = database.String
	}
	if f.several, err = several(ctx, conn); err != nil {
		return f, err
	}
	if b.multi, err = multi(ctx, conn); err != nil {
		return f, err
	}
	return f, b.prepare(ctx, conn)
}

// several finds out whether the server is one of Galera or of group replication.
func several(ctx context.Context, conn *sql.Conn) (bool, error) {
	rows, err := conn.QueryContext(ctx, "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on','group_replication_group_name')")
	if err != nil {
		return false, failure(err)
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return false, failure(err)
		}
		found = found || value != "" && !strings.EqualFold(value, "OFF")
	}
	if err := rows.Err(); err != nil {
		return false, failure(err)
	}
	return found, nil
}

// multi finds out whether the connection takes two statements at once.
func multi(ctx context.Context, conn *sql.Conn) (bool, error) {
	rows, err := conn.QueryContext(ctx, "DO 0; SELECT 1")
	if number(err) == errSyntax {
		return false, nil
	}
	if err != nil {
		return false, failure(err)
	}
	defer rows.Close()
	for rows.Next() {
	}
	return true, rows.Err()
}

func (b *Backend) capabilities(caveats []string) backend.Capabilities {
	c := backend.Capabilities{
		Name:    "mysql",
		Scope:   backend.ScopeNetwork,
		Loss:    backend.LossTTL,
		Order:   backend.FIFO,
		Wake:    backend.WakePoll,
		Fencing: backend.FencingRestart,
		MinTTL:  500 * time.Millisecond, // a claim of that length must outlast several looks of a waiter
		MaxTTL:  100 * 24 * time.Hour,   // what fits into an entry of the queue
		Caveats: append([]string{
			"With asynchronous or semi-synchronous replication a failover may forget the last grants: two may then hold a lock until the first one's lease ends, and only a check of the token at the resource, or Guard, tells them apart.",
			"Tokens rise over a restart, a failover and the loss of the table as long as the clock of the server that takes over is not behind the moment of the last grant.",
			fmt.Sprintf("A waiter that died delays those behind it by its TTL, at most %v, when its turn comes.", claim),
			fmt.Sprintf("A request that the network delivers more than %v after its attempt was abandoned, or after %d later ones on the same lock, is no longer refused.", tombstoneFor, maxGone),
			"The holder of a broken lock learns of it at its next renewal.",
			"All must use the same server or group of servers: writes to several primaries at once (Galera, multi-primary group replication) exclude each other only by failing at commit.",
		}, caveats...),
	}
	if b.bell != nil {
		c.Wake = backend.WakePush
		c.WakesPerRelease = 1
		c.HandOffCommands = 6      // two to ask, two to release, two to be woken
		c.IdleWaiterCommands = 3.5 // two whenever the lease that it knows of would end
		c.Caveats = append(c.Caveats, fmt.Sprintf("A waiter that is stopped while the server keeps its connection (SIGSTOP, a machine that vanished) delays those behind it, when its turn comes, until the lease would have ended that its predecessor had, at most %v.", longest))
		c.Caveats = append(c.Caveats, "Where the connection that announces an attempt is lost, those behind it look four times a second until it has had its turn.")
	}
	return c
}

// Capabilities says what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := b.caps
	c.Caveats = slices.Clone(c.Caveats)
	return c
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	return b.run(ctx, func(ctx context.Context, c *sql.Conn) error {
		if err := c.PingContext(ctx); err != nil {
			return failure(err)
		}
		return nil
	})
}

// Close waits, until ctx ends, for what is in flight. A pool that was given to New
// stays open.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
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
	if b.bell != nil {
		b.bell.close()
	}
	if b.own {
		_ = b.db.Close() // of no consequence
	}
	return err
}

// background runs f, within the timeout, unless the backend is closed.
func (b *Backend) background(f func(context.Context)) bool {
	if !b.enter() {
		return false
	}
	go func() {
		defer b.wg.Done()
		ctx, cancel := context.WithTimeout(context.Background(), b.opt.timeout)
		defer cancel()
		f(ctx)
	}()
	return true
}
