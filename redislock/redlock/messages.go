package redlock

import (
	"fmt"
	"maps"
	"slices"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// handleMessage handles a message to this process. It does not block.
func (r *Backend) handleMessage(n *node, payload string) {
	m, ok := wire.ParseMessage(payload)
	r.mu.Lock()
	a := r.attempts[m.Owner]
	r.mu.Unlock()
	i := n.i
	if !ok || r.life.Err() != nil {
		return
	}
	switch m.Kind {
	case wire.Granted:
		switch {
		case a != nil && a.pushed(i, m.Grant.Token, m.Grant.Expiry, m.Grant.TTL):
		case a != nil:
			a.freeInBackground(i)
		default:
			// The attempt has ended. If the release fails, the short provisional TTL ends the grant.
			n.send(func() {
				k := keysOf(m.Grant.Key)
				re, _ := n.call(wire.Release, r.names(k, m.Owner), n.args(0, m.Owner, "0", "")...)
				n.follow(k, re.Num(0))
			})
		}
	case wire.LeaseChanged:
		if a != nil {
			a.leaseChanged(i, m.Left)
		}
	case wire.Revoked:
		if a == nil || !a.broken(i) {
			return
		}
		a.onLost()
		if a.req.OnLost != nil {
			a.req.OnLost(fmt.Errorf("%w: broken by another client", backend.ErrLost))
		}
	}
}

// pollNow makes every waiter begin a round: messages of a node may have been missed.
func (r *Backend) pollNow() {
	r.eachWaiter(func(a *attempt) { a.askAgain = true })
}

// othersAsk makes the other waiters of a key begin a round: a node has removed one, and thus all of this process.
func (r *Backend) othersAsk(one *attempt) {
	r.eachWaiter(func(a *attempt) {
		if a != one && a.req.Key == one.req.Key && !a.removed {
			a.askAgain, a.removed = true, true
		}
	})
}

// eachWaiter calls f under the lock of each attempt that is not granted, and signals the attempt.
func (r *Backend) eachWaiter(f func(*attempt)) {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.attempts))
	r.mu.Unlock()
	for _, a := range all { // r.mu is taken under a.mu, not the other way round
		a.mu.Lock()
		if !a.granted && !a.withdrawn {
			f(a)
		}
		a.mu.Unlock()
		a.signal()
	}
}
