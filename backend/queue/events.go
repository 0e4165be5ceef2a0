package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Granted implements Events. An attempt trusts the grant if it knows, by the clock of the service, that at least half
// of it is left. Otherwise it asks, and the answer has the same grant for its whole TTL.
func (b *Backend) Granted(g Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempts[g.Owner]
	if a == nil {
		b.endLater(End{Request: backend.Request{Key: g.Key, Owner: g.Owner}, Kind: Release})
		return
	}
	a.notified = g.Received
	if a.state == holding {
		return // an answer has shown it
	}
	until := a.line.clock.until(g)
	if a.state == revoked || time.Until(until) < g.TTL/2 {
		a.line.want(a)
		return
	}
	a.state = holding
	a.line.granted(a, false)
	a.hold(g.Token, g.Slots, g.Received, until)
	a.signal()
}

// LeaseEnds implements Events.
func (b *Backend) LeaseEnds(owner string, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.attempts[owner]; a != nil && a.state != holding {
		a.line.poll.leaseEnds(left)
		a.line.arm()
	}
}

// Asked implements Events.
func (b *Backend) Asked(key, owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch a := b.attempts[owner]; {
	case a == nil:
		b.endLater(End{Request: backend.Request{Key: key, Owner: owner}, Kind: Abandon})
	case a.state != holding:
		a.askAgain()
	}
}

// Removed implements Events. The answer to the request says it too, and so the others of the line ask.
func (b *Backend) Removed(_, owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.attempts[owner]; a != nil && a.state != holding {
		a.askAgain()
	}
}

// askAgain lets a ask, and again after a request that is in flight. b.mu is held.
func (a *attempt) askAgain() {
	a.line.poll.repeat = true
	a.line.want(a)
}

// Lost implements Events.
func (b *Backend) Lost(owner string) {
	b.mu.Lock()
	a := b.attempts[owner]
	if a == nil || a.state != holding {
		if a != nil {
			a.state = revoked // of this grant, or of one before the next, of which an event is on its way
		}
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	a.lost()
	if a.req.OnLost != nil {
		a.req.OnLost(fmt.Errorf("%w: broken by another client", backend.ErrLost))
	}
}

// Interrupted implements Events.
func (b *Backend) Interrupted(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, l := range b.lines {
		if key == "" || key == k {
			l.clock.invalidate()
			l.poll.now()
			l.arm()
		}
	}
}

// endLater ends what remains of an attempt that this process does not know any more.
func (b *Backend) endLater(e End) {
	b.background(func(ctx context.Context) { b.finish(ctx, e) })
}

// lost ends an attempt whose grant is lost. What the service may still execute of it is refused.
func (a *attempt) lost() {
	a.b.unregister(a)
	if a.unanswered.Swap(false) {
		a.b.background(func(ctx context.Context) {
			a.b.finish(ctx, End{Request: a.req, Kind: Abandon, Late: true})
		})
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.wake != nil {
		a.signal()
	}
}
