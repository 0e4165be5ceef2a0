package queue

import (
	"math/rand/v2"
	"time"
)

const (
	minBackoff = 20 * time.Millisecond // after a request that failed
	maxBackoff = time.Second
	minPoll    = 10 * time.Millisecond // without events
	maxPoll    = 500 * time.Millisecond

	// A waiter that does not watch asks after one and a half of the lease, of which its own TTL counts up to this.
	maxOwnTTL = 30 * time.Second
	// foreignPoll is how often a waiter asks behind a lease that does not end, or a holder of another program.
	foreignPoll = time.Second
)

// slack keeps a request from arriving just before a lease ends.
func slack() time.Duration { return time.Millisecond + rand.N(time.Millisecond) }

// schedule says when a line asks next.
type schedule struct {
	next    time.Time
	latest  time.Time     // what an event may not exceed
	ask     time.Time     // when shares ask whether the first waiter has answered; zero: not
	repeat  bool          // an event came, or may have been lost, since the last request was sent
	pause   time.Duration // without events, between two requests of a waiter
	endless int           // answers in a row that showed a lease that does not end
}

// due returns when the first of a line asks.
func (s *schedule) due(first *attempt) time.Time {
	if !s.ask.IsZero() && s.ask.Before(s.next) && !first.req.Share.Exclusive() {
		return s.ask
	}
	return s.next
}

// answered sets it after an answer that an attempt waits.
func (s *schedule) answered(a *attempt, r Answer, polls bool) {
	lease := r.Left
	longest := max(lease, min(a.req.TTL, maxOwnTTL))
	next, latest := lease+slack(), longest+longest/2+50*time.Millisecond
	switch {
	case lease < 0:
		next = min(foreignPoll/10<<min(s.endless, 4), foreignPoll)
		latest = 5 * next
		s.endless++
	case r.Holder.Foreign:
		next = min(next, foreignPoll)
		latest = 5 * next
	default:
		s.endless = 0
	}
	s.latest = r.Sent.Add(latest)
	if !r.Watch {
		next = latest
	}
	switch {
	case polls:
		s.pause = max(s.pause, minPoll)
		next = min(s.pause, a.req.TTL/3)
		if lease > 0 {
			next = min(next, lease+time.Millisecond)
		}
	case s.repeat:
		next = 0
	}
	s.repeat = false
	s.next = r.Sent.Add(next)
	switch at := r.Sent.Add(r.Ask + slack()); {
	case r.Ask <= 0:
		s.ask = time.Time{}
	case r.NoPlace && !s.ask.IsZero() && !at.Before(s.ask): // one that has just come does not delay the others
	default:
		s.ask = at
	}
}

// granted sets it after a grant to an attempt of the line.
func (s *schedule) granted(a *attempt, polls bool) {
	s.pause, s.ask = 0, time.Time{}
	if !a.req.Share.Exclusive() {
		s.ask = time.Now().Add(ProvisionalTTL) // those behind may be kept out by a dead first waiter
	}
	s.next = time.Now().Add(a.req.TTL + slack())
	s.latest = s.next
	if polls {
		s.next = time.Now().Add(minPoll) // others of the line may have been granted the key too
	}
}

// leaseEnds sets it after an event.
func (s *schedule) leaseEnds(left time.Duration) {
	if s.latest.IsZero() {
		s.repeat = true // before the first answer
		return
	}
	if s.next = time.Now().Add(left + slack()); s.next.After(s.latest) {
		s.next = s.latest
	}
}

// now lets the line ask now, and again after a request that is in flight.
func (s *schedule) now() { s.repeat, s.next = true, time.Now() }

// clock converts times of the service to local ones, by the last answer.
type clock struct {
	sent    time.Time
	at      time.Duration
	stale   bool
	staleAt time.Time // what was sent before does not count
}

func (c *clock) observe(r Answer) {
	if !r.Sent.Before(c.staleAt) {
		c.sent, c.at, c.stale = r.Sent, r.Now, false
	}
}

func (c *clock) invalidate() { c.stale, c.staleAt = true, time.Now() }

// until returns when a grant certainly ends, however late its event has arrived; zero if that is unknown. The clocks
// of the service and of this machine may drift apart by 500 ppm.
func (c *clock) until(g Grant) time.Time {
	if c.stale || c.at == 0 || g.Expires == 0 {
		return time.Time{}
	}
	t := c.sent.Add(g.Expires - c.at - g.Received.Sub(c.sent)/2000)
	if t.After(g.Received.Add(g.TTL)) {
		return time.Time{} // the clock of the service was set
	}
	return t
}
