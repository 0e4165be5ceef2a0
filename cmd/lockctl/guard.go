package main

import "time"

// guard decides when a command must be told to end, and when it must be killed,
// so that it is gone before anybody else can be granted its lock even if it
// ignores being told:
//
//	last renewal                  TERM         KILL    trust over     TTL over
//	     |--------------------------|-- grace --|--lead--|--- margin ---|
//
// The library signals a loss when the trust is over, which would leave a command
// only the margin to end in. So the guard does not wait for that: when no renewal
// has succeeded for so long that just the grace is left, the command is ended.
//
// A loss that the service itself reports (the lock was broken) cannot be foreseen:
// then TERM is sent at once, and KILL a grace later or at the end of the trust,
// whichever is first.
type guard struct {
	grace time.Duration // between TERM and KILL
	lead  time.Duration // between KILL and the end of the trust

	ending bool
	killed bool
	killAt time.Time
}

// newGuard makes the guard of a lease with a TTL.
func newGuard(ttl, grace time.Duration) *guard {
	// the lead is for a timer that is late and for a kernel that takes its time
	return &guard{grace: grace, lead: min(max(ttl/50, 5*time.Millisecond), 100*time.Millisecond)}
}

// defaultGrace is long enough for most commands, and short enough that a renewal
// may fail several times before a command is ended: the first is due at TTL/3.
func defaultGrace(ttl time.Duration) time.Duration { return min(5*time.Second, ttl/4) }

// maxGrace leaves time for at least one renewal before a command is ended.
func maxGrace(ttl time.Duration) time.Duration { return ttl / 2 }

// action is what the guard asks for.
type action int

const (
	actNone action = iota
	actTerm
	actKill
)

// check tells what to do now, for a lease that is trusted until expires (zero: it
// does not expire) and has ended if lost is not nil, and when to ask again unless
// something happens (zero: never). It asks for each action once.
func (g *guard) check(now, expires time.Time, lost error) (action, time.Time) {
	var last time.Time // KILL must not come later
	if !expires.IsZero() {
		last = expires.Add(-g.lead)
	}
	if !g.ending {
		due := last.Add(-g.grace)
		switch {
		case lost == nil && expires.IsZero():
			return actNone, time.Time{}
		case lost == nil && now.Before(due):
			return actNone, due
		}
		g.ending = true
		g.killAt = now.Add(g.grace)
		if !expires.IsZero() && last.Before(g.killAt) {
			g.killAt = last
		}
		if now.Before(g.killAt) {
			return actTerm, g.killAt
		}
	}
	switch {
	case g.killed:
		return actNone, time.Time{}
	case now.Before(g.killAt):
		return actNone, g.killAt
	}
	g.killed = true
	return actKill, time.Time{}
}

// enough tells whether a lease has so much trust left that its command can be started.
func (g *guard) enough(now, expires time.Time) bool {
	return expires.IsZero() || now.Add(g.grace+g.lead).Before(expires)
}
