package natslock

import (
	"context"
	"errors"
	"time"
)

// leastSilence is the time without a reply after which a connection may be dead. A request that ends sooner says
// nothing of it.
const leastSilence = 100 * time.Millisecond

// exchange is what a connection had received when a request was sent.
type exchange struct {
	sent             time.Time
	received, opened uint64
}

func (b *Backend) beginExchange() exchange {
	s := b.conn.Stats()
	return exchange{sent: time.Now(), received: s.InMsgs, opened: s.Reconnects}
}

// unanswered makes a new connection if the deadline of ctx ended the request e, and the connection has received nothing
// since the request was sent. A network may forget a connection without closing it: a router that restarts, an address
// that moves to another machine. The pings of the library notice that later. A connection of the caller also has other
// users, so it stays.
func (b *Backend) unanswered(ctx context.Context, e exchange) {
	if !b.ownsConn || !errors.Is(ctx.Err(), context.DeadlineExceeded) || time.Since(e.sent) < leastSilence {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.conn.Stats()
	if b.conn.IsConnected() && s.InMsgs == e.received && s.Reconnects == e.opened {
		b.beginSessionLocked()
		_ = b.conn.ForceReconnect() // fails if the connection is closed
	}
}

// beginSessionLocked ends the requests in flight, because the connection breaks.
func (b *Backend) beginSessionLocked() {
	b.endSession()
	b.session, b.endSession = context.WithCancel(b.ended)
}
