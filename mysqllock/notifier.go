package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// notifier wakes waiters by named locks of the server (GET_LOCK). A holder or waiter owns
// the named lock of its owner id; its successor blocks on that lock, and the packet that
// changes its row releases it. A missed or spurious wake-up costs one read of the row and
// never causes a grant.
//
// A session that owns named locks never waits for one, so named locks cannot deadlock.
type notifier struct {
	b        *Backend
	prefix   string // of named locks, which are global to the server
	maxConns int    // lock connections; 0 after close
	maxWaits int    // connections that wait for a named lock

	mu      sync.Mutex // guards the fields below
	conns   []*lockConn
	dialing int
	slots   [maxLockConns]bool           // which numbers lock connections have
	owners  map[string]*lockConn         // by owner id; the named lock of a dead connection may be free
	waits   map[*line]context.CancelFunc // of the lines whose watcher has a connection: ends its wait

	noConnBefore time.Time     // cool-down of lock connections
	noWaitBefore time.Time     // cool-down of connections that wait
	cooldownEnd  time.Time     // of the last refusal by a full server
	cooldown     time.Duration // its length
}

const (
	acquireConnWait = 250 * time.Millisecond // for a busy lock connection; then the attempt goes without
	releaseConnWait = 100 * time.Millisecond // for the lock connection of an attempt that leaves
	connectCooldown = 5 * time.Second        // before the next attempt to open a lock connection
	minCooldown     = time.Second            // of a full server; doubled while it stays full
	maxCooldown     = time.Minute
)

func newNotifier(b *Backend, database string, maxConns, maxWaits int) *notifier {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s.%s", database, b.table.name)
	return &notifier{
		b: b, maxConns: maxConns, maxWaits: maxWaits,
		prefix: fmt.Sprintf("interlock.%08x.", h.Sum32()), // 51 bytes with an owner id; the servers allow 64
		owners: map[string]*lockConn{}, waits: map[*line]context.CancelFunc{},
	}
}

// name returns the named lock of an attempt, as an SQL literal.
func (n *notifier) name(owner string) string { return "'" + n.prefix + owner + "'" }

// checkout returns a lock connection for a new attempt, or nil: the attempt then goes
// without a named lock. n may be nil.
func (n *notifier) checkout(ctx context.Context) *lockConn {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	conns := slices.Clone(n.conns)
	n.mu.Unlock()
	for _, c := range conns {
		if c.checkout(ctx, 0) {
			return c
		}
	}
	n.mu.Lock()
	if len(n.conns)+n.dialing < n.maxConns && time.Now().After(n.noConnBefore) {
		n.dialing++
		n.mu.Unlock()
		return n.dial(ctx)
	}
	if len(n.conns) == 0 {
		n.mu.Unlock()
		return nil
	}
	c := n.conns[rand.N(len(n.conns))]
	n.mu.Unlock()
	if !c.checkout(ctx, acquireConnWait) {
		return nil
	}
	return c
}

// yieldConns makes connections available at a full server: it starts the cool-down, in
// which the notifier opens no connection, and ends the connections that wait. It returns a
// lock connection if one is free; any statement may use it. n may be nil.
func (n *notifier) yieldConns(ctx context.Context) *lockConn {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	now := time.Now()
	if since := now.Sub(n.cooldownEnd); since > maxCooldown {
		n.cooldown = minCooldown
	} else if since > 0 {
		n.cooldown = min(2*n.cooldown, maxCooldown) // the last one was too short
	}
	n.cooldownEnd = now.Add(n.cooldown)
	n.noConnBefore, n.noWaitBefore = atLeast(n.noConnBefore, n.cooldown), atLeast(n.noWaitBefore, n.cooldown)
	n.mu.Unlock()
	n.endWaits()
	return n.checkout(ctx)
}

// atLeast returns the later of t and the time d from now.
func atLeast(t time.Time, d time.Duration) time.Time {
	if u := time.Now().Add(d); u.After(t) {
		return u
	}
	return t
}

// processName returns the named lock that the lock connection i of a process owns.
func (n *notifier) processName(process string, i int) string {
	return fmt.Sprintf("'%s%s.%d'", n.prefix, process, i)
}

// connOf returns the live lock connection that owns the named lock of an attempt, or nil. n may be nil.
func (n *notifier) connOf(owner string) *lockConn {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.owners[owner]; c != nil && !c.dead {
		return c
	}
	return nil
}

// setOwner records that c owns the named lock of an attempt, before c requests it: if the
// attempt leaves its row before the answer, the named lock is released on c afterwards. If c
// does not get it, the caller calls restore.
func (n *notifier) setOwner(owner string, c *lockConn) (restore func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.owners[owner]
	n.owners[owner] = c
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		switch {
		case n.owners[owner] != c: // it left its row
		case before != nil:
			n.owners[owner] = before
		default:
			delete(n.owners, owner)
		}
	}
}

// releaseName releases the named lock of an attempt, after its row was changed over another
// connection. n may be nil.
func (n *notifier) releaseName(owner string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.owners[owner]; c != nil {
		delete(n.owners, owner)
		n.freeName(owner, c)
	}
}

// pulseName releases the named lock of an attempt for a moment, so that waiters read the row. n may be nil.
func (n *notifier) pulseName(owner string) {
	c := n.connOf(owner)
	if c == nil || !n.b.enter() {
		return
	}
	go func() {
		defer n.b.wg.Done()
		if !c.checkout(n.b.life, time.Hour) { // each use of c is bounded by the timeout
			return
		}
		if n.connOf(owner) != c { // it was released meanwhile
			c.checkin(nil)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), n.b.opt.timeout)
		defer cancel()
		var got sql.NullBool
		err := c.conn.QueryRowContext(ctx, "DO RELEASE_LOCK("+n.name(owner)+");SELECT GET_LOCK("+n.name(owner)+",1)").Scan(&got)
		n.mu.Lock()
		if err != nil || !got.Bool {
			delete(n.owners, owner) // waiters poll
		}
		n.mu.Unlock()
		c.checkin(err)
	}()
}

// freeName releases a named lock of c in the background. If c is dead or breaks, freeName
// ends its session, of whose end the server may not know yet.
func (n *notifier) freeName(owner string, c *lockConn) {
	if !n.b.enter() {
		return // close ends the sessions
	}
	go func() {
		defer n.b.wg.Done()
		if c.checkout(n.b.life, time.Hour) { // each use of c is bounded by the timeout
			ctx, cancel := context.WithTimeout(context.Background(), n.b.opt.timeout)
			defer cancel()
			_, err := c.conn.ExecContext(ctx, "DO RELEASE_LOCK("+n.name(owner)+")")
			c.checkin(err)
			if err == nil {
				return
			}
		}
		n.killOwner(context.Background(), owner)
	}()
}

// killOwner ends the session that owns the named lock of an attempt, if its process does not
// release it: its lock was broken, or its connection was lost and the server does not know.
// If the server refuses that, waiters read the row when the lease that they know of ends. It
// is one statement, because an id that came back to the client could be of another session.
func (n *notifier) killOwner(ctx context.Context, owner string) {
	n.kill(ctx, n.name(owner))
}

func (n *notifier) kill(ctx context.Context, name string) {
	_, _ = n.b.exec(ctx, "KILL IS_USED_LOCK("+name+")") // fails if the named lock is free: no session is NULL
}

// close closes the lock connections, and those in use when their statement ends. n may be nil.
func (n *notifier) close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	conns := n.conns
	n.conns, n.maxConns = nil, 0
	clear(n.owners)
	n.mu.Unlock()
	for _, c := range conns {
		select {
		case <-c.free:
			c.checkin(backend.ErrClosed)
		default:
			go func() { <-c.free; c.checkin(backend.ErrClosed) }()
		}
	}
}
