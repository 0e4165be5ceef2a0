package pglock

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

const maxSettled = 1 << 16

// attempt is one that waits, or a grant to be told of its loss.
type attempt struct {
	b   *Backend
	req backend.Request
	key []byte
	// dirty: some request to acquire had no answer, so it may be executed later
	dirty bool
	// waits: pushes are for Acquire; else for the grant. broken: while it waited its
	// grant was broken, since it last asked. Both under b.mu.
	waits, broken bool

	pushed chan push
	timer  *time.Timer // the next poll

	mu    sync.Mutex
	asOf  int64     // the server's clock of what the timer was set by
	bound time.Time // the latest time of the next poll
	// the clock pair: a request was sent at local time sent and the server answered
	// it at its time us. Stale: another server may be answering now.
	sent  time.Time
	us    int64
	stale bool
	again bool // poll once more: what was asked is older than a lost push may be
}

// push is a grant that was handed over.
type push struct {
	token    uint64
	exp      int64 // on the server's clock
	claim    time.Duration
	received time.Time
}

func (b *Backend) newAttempt(req backend.Request, waits bool) *attempt {
	a := &attempt{b: b, req: req, key: b.key(req.Key), waits: waits}
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

// party is how the attempt stands in the queue, in columns of fixed width but for
// the last: owner, process, TTL in milliseconds, metadata.
func (a *attempt) party() string {
	ms := (a.req.TTL + time.Millisecond - 1) / time.Millisecond
	return fmt.Sprintf("%s %s %013d %s", a.req.Owner, a.b.process, ms, escape(a.req.Metadata))
}

// granted ends the waiting. The attempt stays known until its release or loss: a poll may
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

// settle drops the attempt, and remembers that no request of it is on its way.
func (a *attempt) settle() {
	a.drop()
	if a.dirty {
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if len(a.b.settled) >= maxSettled {
		clear(a.b.settled) // harmless: those forgotten get a tombstone
	}
	a.b.settled[a.req.Owner] = struct{}{}
}

// receive handles a notification to this process. It never blocks.
func (b *Backend) receive(payload string) {
	received := time.Now()
	f := strings.Split(payload, " ")
	if len(f) < 2 {
		return
	}
	b.mu.Lock()
	a, closed := b.attempts[f[1]], b.closed
	waits := a != nil && a.waits
	if waits && f[0] == "l" {
		a.broken = true // Acquire finds out; it may have the next grant by then
	}
	b.mu.Unlock()
	switch {
	case closed:
	case f[0] == "g" && len(f) == 6 && a == nil:
		b.returnToSender(f[1], f[5])
	case f[0] == "g" && len(f) == 6 && waits:
		a.push(push{token: uint64(number(f[2])), exp: number(f[3]), claim: time.Duration(number(f[4])) * time.Microsecond, received: received})
	case f[0] == "h" && len(f) == 4 && waits:
		a.heldFor(number(f[2]), time.Duration(number(f[3]))*time.Microsecond)
	case f[0] == "l" && a != nil && !waits && a.req.OnLost != nil:
		a.drop() // nobody releases what is lost
		a.req.OnLost(fmt.Errorf("%w: broken by another client", backend.ErrLost))
	}
}

// number reads what a statement of ours wrote.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func (a *attempt) push(p push) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.pushed: // an earlier one that was not taken in time
	default:
	}
	a.pushed <- p
}

// returnToSender releases a grant for an attempt that nobody waits for any more.
// If it fails the claim's short lease ends it.
func (b *Backend) returnToSender(owner, name string) {
	key, err := hex.DecodeString(name)
	if err != nil || !b.enter() {
		return
	}
	go func() {
		defer b.wg.Done()
		ctx, cancel := context.WithTimeout(b.life, claim)
		defer cancel()
		_, _ = b.exec(ctx, b.sql.release, key, owner, false)
	}()
}

// heldFor is told to the first in the queue when it became that: it alone must
// ask when the lease ends.
func (a *attempt) heldFor(us int64, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if us < a.asOf {
		return // a later answer is known
	}
	a.asOf = us
	next := left + slack()
	if !a.bound.IsZero() {
		next = max(0, min(next, time.Until(a.bound)))
	}
	a.timer.Reset(next)
}

// slack keeps a poll from arriving just before the expiry.
func slack() time.Duration { return time.Millisecond + rand.N(time.Millisecond) }

// held sets the next poll from an answer. The first in the queue asks when the
// lease ends, as far as it knows: it is not told of renewals. The others only look
// whether the first is still there, after half as much again: a holder that renews
// each third of its TTL always has two thirds left.
func (a *attempt) held(r reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent, a.us, a.stale = r.sent, r.us, false
	next, bound := r.left+slack(), r.left*3/2+50*time.Millisecond
	if !r.first {
		next = bound
	}
	a.bound = r.sent.Add(bound)
	switch {
	case a.again:
		a.timer.Reset(0)
	case r.us >= a.asOf:
		a.asOf = r.us
		a.timer.Reset(next)
	}
}

// pollNow lets every waiter ask at once: pushes may have been missed while nobody
// listened, and another server may be answering.
func (b *Backend) pollNow() {
	for _, a := range b.waiting() {
		a.mu.Lock()
		a.stale, a.again = true, true
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
	if most := p.received.Add(p.claim); t.After(most) {
		t = most // the server's clock was stepped
	}
	return t
}

// micro rounds up: a lease must not be shorter than asked for.
func micro(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// escape makes metadata fit into a database of any encoding.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}
