package redislock

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// hear handles a message to this process. It never blocks.
func (r *Redlock) hear(n *voter, payload string) {
	kind, rest, _ := strings.Cut(payload, " ")
	owner, rest, _ := strings.Cut(rest, " ")
	r.mu.Lock()
	a, closed := r.ballots[owner], r.closed
	r.mu.Unlock()
	i := slices.Index(r.nodes, n)
	if closed || i < 0 {
		return
	}
	switch kind {
	case "g": // token, expiry, claim in ms, lock key
		f := strings.SplitN(rest, " ", 4)
		if len(f) != 4 {
			return
		}
		token, _ := strconv.ParseUint(f[0], 10, 64)
		switch {
		case a != nil && a.pushed(i, token, number(f[1]), ofMillis(number(f[2]))):
		case a != nil:
			a.clean(i)
		default:
			// nobody waits for it any more; if this fails, the claim's short lease ends it
			n.send(func() {
				_, _ = n.call(quorumRelease, r.names(keysOf(f[3]), owner), r.args(0, owner, "0", "")...)
			})
		}
	case "h":
		if a != nil {
			a.told(i, ofMillis(number(rest)))
		}
	case "l":
		if a == nil || !a.broken(i) {
			return
		}
		a.gone()
		if a.req.OnLost != nil {
			a.req.OnLost(fmt.Errorf("%w: broken by another client", backend.ErrLost))
		}
	}
}

// pollNow lets every waiter ask at once: a node is back, or may have been missed.
func (r *Redlock) pollNow() {
	r.mu.Lock()
	all := slices.Collect(maps.Values(r.ballots))
	r.mu.Unlock()
	for _, a := range all { // r.mu is taken under a.mu, not the other way round
		a.mu.Lock()
		if !a.held && !a.over {
			a.again = true
		}
		a.mu.Unlock()
		a.signal()
	}
}
