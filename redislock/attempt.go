package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// attemptState says where the messages of the server for an attempt go.
type attemptState int

const (
	waiting attemptState = iota // grants and lease lengths go to Acquire
	revoked                     // as waiting; a grant was revoked since the last request
	holding                     // revocations go to Request.OnLost; TryAcquire begins here
	// An attempt that has ended is not in Backend.attempts: a grant pushed to it is released.
)

// attempt is one attempt to acquire a key, until its grant is released or lost.
type attempt struct {
	b    *Backend
	req  backend.Request
	keys protocol.Keys

	state      attemptState     // guarded by b.mu
	unanswered atomic.Bool      // a request had no reply: the server may still execute it
	swept      atomic.Bool      // sweep has been called
	shared     atomic.Bool      // the attempt asked for a share, or to be downgraded to one
	pushed     chan pushedGrant // capacity 1: the latest grant pushed while waiting

	mu       sync.Mutex // guards the fields below
	polls    pollSchedule
	clock    serverClock
	delivery deliveryCheck
}

// deliveryCheck finds a subscription that does not deliver: an attempt that was queued
// and subscribed has left the queue, or has a grant, without a notification.
type deliveryCheck struct {
	listener *listener // subscribed when the attempt was queued
	queued   time.Time // when it was
	notified time.Time // when a grant was pushed last
}

func (d *deliveryCheck) failed(l *listener) bool {
	return d.listener == l && !d.notified.After(d.queued)
}

func (b *Backend) newAttempt(req backend.Request, state attemptState) *attempt {
	a := &attempt{b: b, req: req, keys: b.proc.Keys(req.Key), state: state}
	a.shared.Store(!req.Share.Exclusive())
	if state == waiting {
		a.pushed = make(chan pushedGrant, 1)
		a.polls.timer = time.NewTimer(time.Hour)
		a.polls.timer.Stop()
	}
	if state == waiting || req.OnLost != nil {
		b.mu.Lock()
		b.attempts[req.Owner] = a
		b.mu.Unlock()
	}
	return a
}

// accept moves the attempt to holding. In state revoked it returns false: the caller
// asks again, and the reply contains the grant if there is one. The attempt stays
// registered until its release, so that a late notification of its grant is recognised.
func (a *attempt) accept() bool {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.state == revoked {
		return false
	}
	a.state = holding
	return true
}

// clearRevoked is called before each request: its reply is newer than the revocation.
func (a *attempt) clearRevoked() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.state == revoked {
		a.state = waiting
	}
}

// unregister ends the attempt. A grant that is pushed later is released.
func (a *attempt) unregister() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.b.attempts[a.req.Owner] == a {
		delete(a.b.attempts, a.req.Owner)
	}
}

// unregisterSettled ends the attempt and records that Abandon needs no tombstone, if
// every request of the attempt had a reply.
func (a *attempt) unregisterSettled() {
	a.unregister()
	if a.unanswered.Load() {
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if len(a.b.settled) >= maxSettled {
		clear(a.b.settled) // those attempts get a tombstone
	}
	a.b.settled[a.req.Owner] = struct{}{}
}

// sweep ends an attempt whose grant is lost. If the server may still execute a request
// of it, sweep abandons the attempt in the background.
func (a *attempt) sweep() {
	a.unregister()
	b := a.b
	if !a.unanswered.Load() || a.swept.Swap(true) {
		return
	}
	b.srv.Go(func() {
		ctx, cancel := context.WithTimeout(b.srv.Life, protocol.ProvisionalTTL)
		defer cancel()
		_ = b.abandon(ctx, a.req, true) // if it fails, the lease ends as after a crash
	})
}

// receive handles a message to this process that arrived at listener l. It never blocks.
func (b *Backend) receive(l *listener, payload string) {
	received := time.Now()
	all, ok := protocol.ParseMessages(payload)
	if !ok || b.srv.Life.Err() != nil {
		return
	}
	for _, m := range all {
		b.receiveMessage(l, m, received)
	}
}

func (b *Backend) receiveMessage(l *listener, m protocol.Message, received time.Time) {
	b.mu.Lock()
	a := b.attempts[m.Owner]
	wait := a != nil && a.state != holding
	if wait && m.Kind == protocol.Revoked {
		a.state = revoked // of this grant, or of one before the next that is on its way
	}
	b.mu.Unlock()
	switch m.Kind {
	case protocol.Resubscribe:
		b.subs.lost(l, errNotDelivered)
	case protocol.Granted:
		if a == nil {
			b.endUnclaimed(releaseScript, m)
			return
		}
		a.receiveGrant(pushedGrant{m.Grant, received}, wait)
	case protocol.LeaseChanged:
		if wait {
			a.mu.Lock()
			a.polls.leaseChanged(m.Left)
			a.mu.Unlock()
		}
	case protocol.Asked:
		b.answer(a, wait, m)
	case protocol.Revoked:
		if a == nil || wait {
			return
		}
		a.sweep()
		if a.req.OnLost != nil {
			a.req.OnLost(fmt.Errorf("%w: broken by another client", backend.ErrLost))
		}
	}
}

// receiveGrant passes g to Acquire if it waits. Otherwise a poll found the grant before.
func (a *attempt) receiveGrant(g pushedGrant, wait bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delivery.notified = g.received
	if !wait {
		return
	}
	select {
	case <-a.pushed: // an earlier grant, which expired
	default:
	}
	a.pushed <- g
}

// endUnclaimed ends what remains of an attempt that has ended and got message m: its grant by
// RELEASE, or its place in the queue by ABANDON. If that fails, the provisional TTL ends it.
func (b *Backend) endUnclaimed(script *protocol.Script, m protocol.Message) {
	b.srv.Go(func() {
		ctx, cancel := context.WithTimeout(b.srv.Life, protocol.ProvisionalTTL)
		defer cancel()
		k := b.proc.KeysOf(m.Grant.Key)
		const member = "" // not known: ABANDON searches the queue
		r, _ := b.srv.Eval(ctx, script, k.Script(), b.proc.ChannelPrefix(), m.Owner, "0", member)
		b.follow(k, r.Num(0))
	})
}

// checkDelivery judges a reply to an attempt that was in the queue. If the attempt has
// left the queue without a notification, checkDelivery resubscribes.
func (a *attempt) checkDelivery(r protocol.Reply, l *listener) {
	granted, dequeued := r.Status == protocol.Yes && r.Num(2) != 0, r.Status == protocol.No && r.Num(4) != 0
	if l == nil || !granted && !dequeued {
		return
	}
	check := func() {
		a.mu.Lock()
		failed := a.delivery.failed(l)
		a.mu.Unlock()
		if failed {
			a.b.subs.lost(l, errNotDelivered)
		}
	}
	if dequeued {
		check()
		return
	}
	time.AfterFunc(pushDelay, func() { // the notification may be on its way
		if a.b.srv.Enter() {
			defer a.b.srv.Done()
			check()
		}
	})
}

var errNotDelivered = errors.New("redis: a grant was not delivered on the subscription")

func isUncertain(err error) bool { return errors.Is(err, backend.ErrUncertain) }
