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

// unanswered reports whether a request that began then, and ended with the error of ctx, says that its connection may
// be dead.
func unanswered(ctx context.Context, begun time.Time) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(begun) >= silentAfter
}

// testIdle closes the idle connections that do not answer. It returns when no other request can take them. That of
// the listener cannot be tested while it sleeps: if another one is dead, it is replaced.
func (s *service) testIdle() {
	if !s.testing.CompareAndSwap(false, true) {
		return // it takes a second
	}
	ctx, cancel := context.WithTimeout(s.life.Context(), min(testTimeout, s.opt.timeout))
	idle := s.takeIdle(ctx)
	test := func() {
		defer s.testing.Store(false)
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
				dead.Do(s.listener.replace)
			})
		}
		all.Wait()
	}
	if !s.life.Go(test) {
		test() // after Close
	}
}

// closeIdle closes all connections that are idle, and that of the listener: the server became read-only. A connection
// that another request uses at the moment is closed after its own error.
func (s *service) closeIdle(ctx context.Context) {
	for _, conn := range s.takeIdle(ctx) {
		discard(conn)
	}
	s.listener.replace()
}

// takeIdle takes the idle connections out of the pool.
func (s *service) takeIdle(ctx context.Context) (conns []*sql.Conn) {
	for range s.db.Stats().Idle {
		if s.db.Stats().Idle == 0 {
			break // other requests have taken them
		}
		conn, err := s.db.Conn(ctx)
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	return conns
}
