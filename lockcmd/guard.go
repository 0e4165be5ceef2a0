package lockcmd

import "time"

// guard decides when to end a command, so that it is dead before another client can be
// granted the lock, even if the command ignores TERM:
//
//	last renewal                  TERM         KILL    trust ends     TTL ends
//	     |--------------------------|-- grace --|--lead--|--- margin ---|
//
// The library reports a loss when the trust ends, which leaves only the margin. The
// guard acts before that: when renewals failed until only the grace is left.
//
// A loss that the service reports (the lock was broken) cannot be foreseen: then TERM
// is sent at once, and KILL a grace later or at the end of the trust, whichever is
// first.
type guard struct {
	grace time.Duration // between TERM and KILL
	lead  time.Duration // between KILL and the end of the trust

	ending bool
	killed bool
	killAt time.Time
}

// newGuard returns the guard of a lease with a TTL.
func newGuard(ttl, grace time.Duration) *guard {
	// the lead allows for a late timer and for the time that the kernel needs
	return &guard{grace: grace, lead: min(max(ttl/50, 5*time.Millisecond), 100*time.Millisecond)}
}

// defaultGrace is long enough for most commands, and short enough for several failed
// renewals before a command is ended: the first is due at TTL/3.
func defaultGrace(ttl time.Duration) time.Duration { return min(5*time.Second, ttl/4) }

// maxGrace leaves time for at least one renewal before a command is ended.
func maxGrace(ttl time.Duration) time.Duration { return ttl / 2 }

// action is a decision of the guard.
type action int

const (
	actNone action = iota
	actTerm
	actKill
)

// check returns what to do now and when to call it again, zero for never. The lease is
// trusted until expires, for ever if that is zero, and has ended if lost is not nil.
// check returns each action once.
func (g *guard) check(now, expires time.Time, lost error) (action, time.Time) {
	var last time.Time // for KILL
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

// canStart reports whether a lease is trusted for long enough to start a command.
func (g *guard) canStart(now, expires time.Time) bool {
	return expires.IsZero() || now.Add(g.grace+g.lead).Before(expires)
}
