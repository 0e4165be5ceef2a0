package pglock

import (
	"math/rand/v2"
	"time"
)

const (
	minPollInterval = 10 * time.Millisecond  // without notifications
	maxPollInterval = 500 * time.Millisecond // well within the provisional TTL
)

// pollSchedule decides when a waiter asks next. The first waiter asks when the lease of
// the holder ends; the others ask later, in case the first one has died.
type pollSchedule struct {
	timer    *time.Timer
	interval time.Duration // without notifications
	asOf     int64         // server time of the reply or notification that set the timer
	latest   time.Time     // limits what a notification may set
	again    bool          // notifications may be lost since the request was sent: poll after its reply
}

// schedule sets the next poll after a reply that the key is held. The first waiter is
// not notified of renewals, so it asks when the lease ends. The others ask after half
// as much again: a holder that renews at every third of the TTL always has two thirds
// left.
func (a *attempt) schedule(r reply) {
	polling := a.b.polling()
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.polls
	a.clock = serverClock{sent: r.sent, at: r.serverTime, stale: p.again}
	if a.ahead = r.ahead; a.pushSeen {
		a.ahead = "" // the secret may be known by now
	}
	next, latest := r.holder.Left+slack(), r.holder.Left*3/2+50*time.Millisecond
	if !r.first {
		next = latest
	}
	p.latest = r.sent.Add(latest)
	switch {
	case polling:
		p.interval = min(max(2*p.interval, minPollInterval), maxPollInterval)
		next = min(p.interval, r.holder.Left+time.Millisecond, a.req.TTL/3)
	case p.again:
		next = 0
	case r.serverTime < p.asOf: // a newer notification has set the timer
		return
	}
	p.asOf = max(p.asOf, r.serverTime)
	p.timer.Reset(next)
}

// leaseChanged sets the next poll of an attempt that became the first waiter: it must
// ask when the lease, of which left remained at serverTime, ends.
func (a *attempt) leaseChanged(serverTime int64, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.polls
	if serverTime < p.asOf {
		return // older than the last reply
	}
	if p.latest.IsZero() {
		p.again = true // before the first reply; any role can send notifications
		return
	}
	p.asOf = serverTime
	p.timer.Reset(max(0, min(left+slack(), time.Until(p.latest))))
}

// slack keeps a poll from arriving just before the lease ends.
func slack() time.Duration { return time.Millisecond + rand.N(time.Millisecond) }

// pollNow makes every waiter poll at once: notifications may be lost, and another
// server may answer now.
func (b *Backend) pollNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.attempts {
		if a.state == holding || a.state == settled {
			continue
		}
		a.mu.Lock()
		a.clock.stale, a.polls.again = true, true
		a.polls.timer.Reset(0)
		a.mu.Unlock()
	}
}

// serverClock relates times of the server to local ones: a request was sent at the
// local time sent and executed at the server time at.
type serverClock struct {
	sent  time.Time
	at    int64 // µs; 0: not known
	stale bool  // another server may answer now
}

// until returns the local time up to which a pushed grant is certain, however late the
// push was received, or zero if the server clock is not known.
func (c serverClock) until(p push) time.Time {
	if c.stale || c.at == 0 {
		return time.Time{}
	}
	// The clocks may have drifted apart by 500 ppm since the request.
	t := c.sent.Add(micros64(p.expires-c.at) - p.received.Sub(c.sent)/2000)
	if latest := p.received.Add(p.ttl); t.After(latest) {
		t = latest // the server's clock was set
	}
	return t
}
