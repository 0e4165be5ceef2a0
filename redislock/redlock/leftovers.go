package redlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
)

// maxEnders is how many requests at a time end the leftovers of a node. A node that does not answer, or a machine that is
// overloaded, gets no more of them the longer that lasts.
const maxEnders = 4

// leftovers are the attempts that one node has still to end.
type leftovers struct {
	mu     sync.Mutex
	owners map[string]bool // of those in all, and of those that are being ended
	all    []leftover      // the oldest first
	enders int
}

type leftover struct {
	backend.Request
	until time.Time // when a grant would have expired
}

// endLater ends an attempt at the node in the background, until that is acknowledged or a grant would have expired.
func (n *node) endLater(req backend.Request) {
	l := &n.leftovers
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[req.Owner] {
		return
	}
	l.owners[req.Owner] = true
	l.all = append(l.all, leftover{req, time.Now().Add(req.TTL + time.Second)})
	if l.enders < maxEnders && n.s.life.Go(n.endLeftovers) {
		l.enders++
	}
}

// endLeftovers ends leftovers until there are no more. While the node does not answer it pauses.
func (n *node) endLeftovers() {
	const first, last = 10 * time.Millisecond, 500 * time.Millisecond
	life := n.s.life.Context()
	for backoff := first; ; {
		o, ok := n.nextLeftover()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(life, n.s.opt.nodeTimeout)
		r := n.End(ctx, queue.End{Request: o.Request, Late: true})
		cancel()
		if r.Err == nil {
			n.ended(o)
			backoff = first
			continue
		}
		n.leftovers.again(o)
		if !call.Sleep(life, backoff/2+rand.N(backoff/2)) {
			return
		}
		backoff = min(2*backoff, last)
	}
}

// nextLeftover takes the oldest leftover whose grant may not have expired. If there is none, the caller is done.
func (n *node) nextLeftover() (o leftover, ok bool) {
	l := &n.leftovers
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.all) > 0 {
		o, l.all = l.all[0], l.all[1:]
		if time.Now().Before(o.until) {
			return o, true
		}
		l.forget(n.s, o)
	}
	l.enders--
	return leftover{}, false
}

func (n *node) ended(o leftover) {
	n.leftovers.mu.Lock()
	defer n.leftovers.mu.Unlock()
	n.leftovers.forget(n.s, o)
}

// forget is called with mu held.
func (l *leftovers) forget(s *service, o leftover) {
	delete(l.owners, o.Owner)
	s.forget(o.Owner)
}

// again puts a leftover behind the others.
func (l *leftovers) again(o leftover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, o)
}
