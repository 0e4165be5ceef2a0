package redislock

import (
	"time"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// pollSchedule decides when a waiting attempt polls next. It is guarded by attempt.mu.
//
// Only the head of the queue polls when the lease ends: the server sends it each new
// lease length. The others check after 1.5 times the lease whether the head still
// exists. A holder renews every third of its TTL, so two thirds always remain, and no
// waiter polls more than once in a TTL.
type pollSchedule struct {
	timer    *time.Timer
	next     time.Time
	latest   time.Time // upper bound of next
	notified time.Time // when the server sent a lease length last
	repeat   bool      // poll again at once: the request in flight may predate a lost notification
	endless  int       // consecutive polls behind a holder whose key does not expire
}

func (p *pollSchedule) set(at time.Time) {
	if !p.latest.IsZero() && at.After(p.latest) {
		at = p.latest
	}
	p.next = at
	p.timer.Reset(max(0, time.Until(at)))
}

// within makes the next poll no later than at, whatever notifications come.
func (p *pollSchedule) within(at time.Time) {
	if p.latest.IsZero() || at.Before(p.latest) {
		p.latest = at
	}
	if p.next.After(p.latest) {
		p.set(p.latest)
	}
}

// now polls at once, and again if a request is in flight.
func (p *pollSchedule) now() {
	p.repeat = true
	p.timer.Reset(0)
}

// leaseChanged sets the next poll of the head of the queue. The last notification
// counts, in the order of arrival: the server's clock may be set back.
func (p *pollSchedule) leaseChanged(left time.Duration) {
	now := time.Now()
	p.notified = now
	p.set(now.Add(left + protocol.PollSlack()))
}

// replied sets the next poll after a reply to an attempt with that TTL. The holder's
// lease may be provisional; the bound therefore uses at least ttl, up to MaxPoll.
func (p *pollSchedule) replied(r protocol.Reply, ttl time.Duration) {
	left, head := r.Left(), r.Num(3) == 1
	longest := max(left, min(ttl, protocol.MaxPoll))
	next, latest := left+protocol.PollSlack(), longest+longest/2+50*time.Millisecond
	if left >= 0 {
		p.endless = 0
	}
	if _, _, ours := protocol.ParseOwner(r.Str(2)); !ours || left < 0 {
		if left < 0 {
			next = min(protocol.ForeignPoll/10<<min(p.endless, 4), protocol.ForeignPoll)
			p.endless++
		}
		next = min(next, protocol.ForeignPoll)
		latest = 5 * next
	}
	if !head {
		next = latest
	}
	p.latest = r.Sent.Add(latest)
	at := r.Sent.Add(next)
	switch {
	case p.repeat:
		at = time.Now()
	case p.notified.After(r.Sent) && p.next.Before(at):
		at = p.next // the notification may be newer than the reply
	}
	p.set(at)
}

// pushedGrant is a grant that the server pushed, received at that time.
type pushedGrant struct {
	protocol.Grant
	received time.Time
}

// serverClock converts times of the server's clock to local ones, by the last reply:
// the server's clock showed us after the local time sent.
type serverClock struct {
	sent    time.Time
	us      int64
	stale   bool      // another server may be answering
	staleAt time.Time // requests sent before do not count
}

func (c *serverClock) observe(r protocol.Reply) {
	if !r.Sent.Before(c.staleAt) {
		c.sent, c.us, c.stale = r.Sent, r.US, false
	}
}

func (c *serverClock) invalidate() { c.stale, c.staleAt = true, time.Now() }

// until returns the local time up to which the server certainly keeps g, however late
// the notification arrived. It returns zero if that is unknown.
func (c *serverClock) until(g pushedGrant) time.Time {
	if c.stale || c.us == 0 {
		return time.Time{}
	}
	// the two clocks may drift apart by 500 ppm
	t := c.sent.Add(time.Duration(g.Expiry-c.us)*time.Microsecond - g.received.Sub(c.sent)/2000)
	if t.After(g.received.Add(g.TTL)) {
		return time.Time{} // the server's clock was stepped
	}
	return t
}
