package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"time"
)

// lockConn is a lock connection: it owns the named locks of many attempts.
type lockConn struct {
	n    *notifier
	conn *sql.Conn
	slot int           // 0 to maxLockConns-1
	free chan struct{} // has a value while the connection is not in use
	dead bool          // guarded by notifier.mu
}

// A lock connection is idle for long, and must not wait long for a row that a transaction
// with Guard keeps locked.
const lockConnSetup = "SET SESSION wait_timeout=28800, innodb_lock_wait_timeout=1"

// dial opens a lock connection and returns it checked out, or nil. The caller has counted
// it in n.dialing.
func (n *notifier) dial(ctx context.Context) *lockConn {
	slot := n.takeSlot()
	conn, err := n.b.connect(ctx)
	if err == nil {
		setup, cancel := context.WithTimeout(ctx, n.b.opt.timeout)
		defer cancel()
		// By its named lock another process can end the session, see killProcess.
		_, err = conn.ExecContext(setup, lockConnSetup+";DO GET_LOCK("+n.processName(n.b.process, slot)+",0)")
		if err != nil {
			discard(conn)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialing--
	if err != nil || n.maxConns == 0 {
		n.slots[slot] = false
	}
	switch {
	case err != nil:
		if ctx.Err() == nil { // else the caller did not wait long enough
			n.noConnBefore = atLeast(n.noConnBefore, connectCooldown)
		}
		return nil
	case n.maxConns == 0: // close was called meanwhile
		discard(conn)
		return nil
	}
	c := &lockConn{n: n, conn: conn, slot: slot, free: make(chan struct{}, 1)}
	n.conns = append(n.conns, c)
	return c
}

// takeSlot returns a number that no other lock connection has.
func (n *notifier) takeSlot() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, taken := range n.slots {
		if !taken {
			n.slots[i] = true
			return i
		}
	}
	return 0 // not reached: there are at most maxLockConns
}

// checkout waits up to limit for the connection. It returns false if the connection stays
// in use or is dead.
func (c *lockConn) checkout(ctx context.Context, limit time.Duration) bool {
	select {
	case <-c.free:
		return c.usable(ctx)
	default:
	}
	if limit == 0 {
		return false
	}
	select {
	case <-c.free:
		return c.usable(ctx)
	case <-time.After(limit):
		return false
	case <-ctx.Done():
		return false
	}
}

// usable reports whether a connection that was checked out is still connected. If not,
// usable checks it in.
func (c *lockConn) usable(ctx context.Context) bool {
	c.n.mu.Lock()
	dead := c.dead
	c.n.mu.Unlock()
	if dead {
		c.free <- struct{}{} // the next caller finds it dead too
		return false
	}
	// The pool tests a connection in this way before it returns it.
	err := c.conn.Raw(func(conn any) error {
		if r, ok := conn.(driver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	})
	if err != nil {
		c.checkin(err)
	}
	return err == nil
}

// checkin ends a use of the connection, which ended with err. If the session may have ended,
// checkin closes the connection.
func (c *lockConn) checkin(err error) {
	if sessionEnded(err) {
		c.n.mu.Lock()
		if !c.dead {
			c.dead, c.n.slots[c.slot] = true, false
		}
		c.n.conns = slices.DeleteFunc(c.n.conns, func(o *lockConn) bool { return o == c })
		c.n.mu.Unlock()
		discard(c.conn)
	}
	c.free <- struct{}{}
}
