package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	claim        = 3 * time.Second // CLAIM of the scripts
	tombstoneFor = 5 * time.Minute // longer than a dead connection's data can still arrive
	foreignPoll  = time.Second     // a foreign holder hands over to nobody
	lookAgain    = 30 * time.Second
	pushDelay    = time.Second // after which a push is not on its way any more
	maxSettled   = 1 << 16
	maxTTL       = 365 * 24 * time.Hour
)

// attempt is one that waits, or a grant to be told of its loss.
type attempt struct {
	b    *Backend
	req  backend.Request
	keys keys
	// dirty: some request to acquire had no answer, so it may be executed later
	dirty atomic.Bool
	swept atomic.Bool // gone was called
	// waits: pushes are for Acquire; else for the grant. broken: while it waited its
	// grant was broken, since it last asked. Both under b.mu.
	waits, broken bool

	pushed chan push
	timer  *time.Timer // the next poll

	mu    sync.Mutex
	told  time.Time // when the end of the lease was last told, unasked
	next  time.Time // the next poll
	bound time.Time // its latest time
	// the clock pair: a request was sent at local time sent and the server answered
	// it at its time us. Stale: since the time broke another server may be answering.
	sent  time.Time
	us    int64
	stale bool
	broke time.Time
	again bool // poll once more: what was asked is older than a lost push may be
	// the attempt stood in the queue at the time queued, while that listener listened;
	// a grant was pushed to it at the time heard
	listener *listener
	queued   time.Time
	heard    time.Time
	// consecutive polls beside a holder without expiry
	polls int
}

// push is a grant that was handed over.
type push struct {
	token    uint64
	exp      int64 // on the server's clock
	claim    time.Duration
	received time.Time
}

func (b *Backend) newAttempt(req backend.Request, waits bool) *attempt {
	a := &attempt{b: b, req: req, keys: b.keys(req.Key), waits: waits}
	if waits {
		a.pushed = make(chan push, 1)
		a.timer = time.NewTimer(time.Hour)
		a.timer.Stop()
	}
	if waits || req.OnLost != nil {
		b.mu.Lock()
		b.attempts[req.Owner] = a
		b.mu.Unlock()
	}
	return a
}

// granted ends the waiting. The attempt stays known until its release: a poll may
// have found the grant before the push of it arrives, which must then not be
// returned to the sender. It is false if the grant was broken meanwhile, or the one
// before it: who waits must ask again, which returns the grant if there is one.
func (a *attempt) granted() bool {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.waits = a.waits && a.broken
	return !a.waits
}

// mend forgets that a grant was broken, before the question whether there is one.
func (a *attempt) mend() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.broken = false
}

// drop forgets the attempt. A grant pushed later is returned to the sender.
func (a *attempt) drop() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.b.attempts[a.req.Owner] == a {
		delete(a.b.attempts, a.req.Owner)
	}
}

// gone follows the word of the service that the grant is lost. The core asks
// nothing more of it; a late request of the attempt must not take the key again.
func (a *attempt) gone() {
	a.drop()
	b := a.b
	if !a.dirty.Load() || a.swept.Swap(true) || !b.enter() {
		return
	}
	go func() {
		defer b.wg.Done()
		ctx, cancel := context.WithTimeout(b.life, claim)
		defer cancel()
		_ = b.abandon(ctx, a.req, true) // at worst as if this process had died
	}()
}

// settle drops the attempt, and remembers that no request of it is on its way.
func (a *attempt) settle() {
	a.drop()
	if a.dirty.Load() {
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if len(a.b.settled) >= maxSettled {
		clear(a.b.settled) // harmless: those forgotten get a tombstone
	}
	a.b.settled[a.req.Owner] = struct{}{}
}

// receive handles a message to this process. It never blocks.
func (b *Backend) receive(l *listener, payload string) {
	received := time.Now()
	kind, rest, _ := strings.Cut(payload, " ")
	owner, rest, _ := strings.Cut(rest, " ")
	b.mu.Lock()
	a, closed := b.attempts[owner], b.closed
	waits := a != nil && a.waits
	if waits && kind == "l" {
		a.broken = true // Acquire finds out; it may have the next grant by then
	}
	b.mu.Unlock()
	if closed {
		return
	}
	switch kind {
	case "x": // passed over: who was to be told listens at a replica
		b.subs.lost(l, errDeaf)
	case "g": // token, expiry, claim in ms, lock key
		f := strings.SplitN(rest, " ", 4)
		if len(f) != 4 {
			return
		}
		switch {
		case a == nil:
			b.returnToSender(owner, f[3])
		case waits:
			p := push{exp: number(f[1]), claim: time.Duration(number(f[2])) * time.Millisecond, received: received}
			p.token, _ = strconv.ParseUint(f[0], 10, 64)
			a.mu.Lock()
			a.heard = received
			select {
			case <-a.pushed: // an earlier one that was not taken in time
			default:
			}
			a.pushed <- p
			a.mu.Unlock()
		default: // a poll found the grant first
			a.mu.Lock()
			a.heard = received
			a.mu.Unlock()
		}
	case "h": // how long the holder's lease lasts in ms
		if waits {
			a.heldFor(ofMillis(number(rest)))
		}
	case "l":
		if a == nil || waits {
			return
		}
		a.gone()
		if a.req.OnLost != nil {
			a.req.OnLost(fmt.Errorf("%w: broken by another client", backend.ErrLost))
		}
	}
}

// returnToSender releases a grant for an attempt that nobody waits for any more.
// If it fails the claim's short lease ends it.
func (b *Backend) returnToSender(owner, lock string) {
	if !b.enter() {
		return
	}
	go func() {
		defer b.wg.Done()
		ctx, cancel := context.WithTimeout(b.life, claim)
		defer cancel()
		k := keysOf(lock)
		_, _ = b.eval(ctx, releaseScript, []string{k.lock, k.queue, k.fence}, b.channelPrefix(), owner, "0")
	}()
}

// heldFor is told to the first in the queue: it alone must ask when the lease
// ends, and it is told of every change. The last word counts, in the order of
// arrival and not of the server's clock, which may be set back.
func (a *attempt) heldFor(left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.told = now
	a.poll(now.Add(left + slack()))
}

// poll sets the timer, under a.mu.
func (a *attempt) poll(at time.Time) {
	if !a.bound.IsZero() && at.After(a.bound) {
		at = a.bound
	}
	a.next = at
	a.timer.Reset(max(0, time.Until(at)))
}

// slack keeps a poll from arriving just before the expiry.
func slack() time.Duration { return time.Millisecond + rand.N(time.Millisecond) }

// held sets the next poll from an answer, always. The first in the queue asks when
// the lease ends. The others only look whether the first is still there, after half
// as much again: a holder that renews each third of its TTL always has two thirds
// left, so no waiter asks more than once in a TTL. A lease may also be a claim,
// which becomes longer at its first renewal; so they look no sooner than if it
// lasted as long as they themselves want it.
func (a *attempt) held(r reply) {
	left, first := r.left(), r.num(3) == 1
	_, _, ours := parseParty(r.str(2))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !r.sent.Before(a.broke) {
		a.sent, a.us, a.stale = r.sent, r.us, false
	}
	longer := max(left, min(a.req.TTL, lookAgain))
	next, bound := left+slack(), longer+longer/2+50*time.Millisecond
	if left >= 0 {
		a.polls = 0
	}
	if !ours || left < 0 {
		if left < 0 { // it never expires
			next = min(foreignPoll/10<<min(a.polls, 4), foreignPoll)
			a.polls++
		}
		next = min(next, foreignPoll)
		bound = 5 * next
	}
	if !first {
		next = bound
	}
	a.bound = r.sent.Add(bound)
	at := r.sent.Add(next)
	switch {
	case a.again:
		at = time.Now()
	case a.told.After(r.sent) && a.next.Before(at):
		at = a.next // which of the two is older cannot be told
	}
	a.poll(at)
}

// deaf judges an answer of the server that the attempt, which stood in the queue,
// stands there no more, or that it was granted: if no push told it, the
// subscription that the server or this process takes for alive is not.
func (a *attempt) deaf(r reply, l *listener) {
	if l == nil || (r.status == yes && r.num(2) == 0) || (r.status == no && r.num(4) == 0) {
		return
	}
	b := a.b
	check := func() {
		a.mu.Lock()
		silent := a.listener == l && !a.heard.After(a.queued)
		a.mu.Unlock()
		if silent {
			b.subs.lost(l, errDeaf)
		}
	}
	if r.status == no {
		check()
		return
	}
	time.AfterFunc(pushDelay, func() { // it may be on its way
		if b.enter() {
			defer b.wg.Done()
			check()
		}
	})
}

var errDeaf = errors.New("redis: a grant was not delivered on the subscription")

// pollNow lets every waiter of the channels ask at once: pushes may have been
// missed while they were not subscribed, and another server may be answering.
func (b *Backend) pollNow(channels ...string) {
	now := time.Now()
	for _, a := range b.subs.waiters(channels) {
		a.mu.Lock()
		a.stale, a.again, a.broke = true, true, now
		a.timer.Reset(0)
		a.mu.Unlock()
	}
}

// until is the local instant up to which a pushed grant is certain, however late
// the push was received; zero if that cannot be told.
func (a *attempt) until(p push) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stale || a.us == 0 {
		return time.Time{}
	}
	// the two clocks may run apart by 500 ppm since the pair was taken
	t := a.sent.Add(time.Duration(p.exp-a.us)*time.Microsecond - p.received.Sub(a.sent)/2000)
	if t.After(p.received.Add(p.claim)) {
		return time.Time{} // the server's clock was stepped
	}
	return t
}

// lockedError describes the holder of a refusal.
func lockedError(r reply) *backend.LockedError {
	return &backend.LockedError{Holder: holder(r.str(2), r.token(), r.left())}
}

func holder(value string, token uint64, left time.Duration) backend.Holder {
	h := backend.Holder{Left: max(left, 0), Token: token}
	owner, metadata, ok := parseParty(value)
	if !ok {
		h.Owner, h.Foreign, h.Token = strings.ToValidUTF8(value, "\uFFFD"), true, 0
		return h
	}
	h.Owner, h.Metadata = owner, metadata
	return h
}

func isUncertain(err error) bool { return errors.Is(err, backend.ErrUncertain) }
