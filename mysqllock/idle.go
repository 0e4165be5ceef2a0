package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// A network may forget connections without closing them: a router that restarts, an address that moves to another
// machine. And a server that became read-only answers on, while new connections reach the primary. In both cases the
// idle connections are as the one that failed, and each would cost another request, so they are tested or closed.

const (
	silentAfter = 100 * time.Millisecond // a request that ends sooner without a reply says nothing of its connection
	testTimeout = time.Second            // for the replies of idle connections
)

// unanswered reports whether a request that was sent at begun, and ended with the error of ctx, says that its
// connection may be dead.
func unanswered(ctx context.Context, begun time.Time) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(begun) >= silentAfter
}

// testIdle closes the idle connections that do not answer. It returns when no other request can take them. The connections of waiters cannot be
// tested while they wait: if another one is dead, testIdle ends their waits.
func (b *Backend) testIdle() {
	if !b.testing.CompareAndSwap(false, true) {
		return // it takes a second
	}
	if !b.enter() {
		b.testing.Store(false)
		return
	}
	ctx, cancel := context.WithTimeout(b.life, min(testTimeout, b.opt.timeout))
	idle := b.takeIdle(ctx)
	go func() {
		defer b.wg.Done()
		defer b.testing.Store(false)
		defer cancel()
		var dead sync.Once
		var all sync.WaitGroup
		for _, conn := range idle {
			all.Go(func() {
				if conn.PingContext(ctx) == nil {
					_ = conn.Close()
					return
				}
				discard(conn)
				dead.Do(b.notifier.endWaits)
			})
		}
		for _, c := range b.notifier.all() {
			all.Go(func() {
				if !c.checkout(ctx, 0) {
					return
				}
				err := c.conn.PingContext(ctx)
				c.checkin(err)
				if err != nil {
					dead.Do(b.notifier.endWaits)
				}
			})
		}
		all.Wait()
	}()
}

// closeIdle closes all connections that are idle, and those that own or wait for named locks: the server became
// read-only. A connection that another request uses at the moment is closed after its own error.
func (b *Backend) closeIdle(ctx context.Context) {
	for _, conn := range b.takeIdle(ctx) {
		discard(conn)
	}
	for _, c := range b.notifier.all() {
		if c.checkout(ctx, 0) {
			c.checkin(errReconnect)
		}
	}
	b.notifier.endWaits()
}

var errReconnect = errors.New("mysql: the server became read-only")

// takeIdle takes the idle connections out of the pool.
func (b *Backend) takeIdle(ctx context.Context) (conns []*sql.Conn) {
	for range b.db.Stats().Idle {
		if b.db.Stats().Idle == 0 {
			break // other requests have taken them
		}
		conn, err := b.db.Conn(ctx)
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	return conns
}

// all returns the lock connections. n may be nil.
func (n *notifier) all() []*lockConn {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*lockConn(nil), n.conns...)
}

// endWaits ends the connections that wait for named locks. n may be nil.
func (n *notifier) endWaits() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, end := range n.waits {
		end()
	}
}
