package redlock

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// follow sends ADVANCE, which grants a free key to its next waiter, when a provisional grant ends that a request of
// this process made at the node: the waiters that the node notified may all be dead. It repeats that while the last
// provisional grant is not claimed. left is the length of the provisional grant in ms, 0 if there is none. A later
// call for the same key delays the script, so that a busy key costs nothing.
func (n *node) follow(k protocol.Keys, left int64) {
	if left <= 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	end := time.Now().Add(protocol.OfMillis(left) + pollSlack())
	_, pending := n.followed[k.Lock]
	n.followed[k.Lock] = end
	if !pending {
		time.AfterFunc(time.Until(end), func() { n.look(k) })
	}
}

// look calls advance when the time of the last follow has come.
func (n *node) look(k protocol.Keys) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv.Context().Err() != nil {
		return
	}
	if d := time.Until(n.followed[k.Lock]); d > 0 {
		time.AfterFunc(d, func() { n.look(k) })
		return
	}
	delete(n.followed, k.Lock)
	n.srv.Go(func() { n.advance(k) })
}

func (n *node) advance(k protocol.Keys) {
	ctx, cancel := context.WithTimeout(n.srv.Context(), backend.MaxProvisionalTTL)
	defer cancel()
	if r, err := n.eval(ctx, wire.Advance, n.r.names(k, ""), n.args(0, "")...); err == nil {
		n.follow(k, r.Num(0))
	}
}
