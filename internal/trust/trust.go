// Package trust says for how long a holder may rely on a grant.
//
// A service keeps a grant until an instant that the driver counts from before its
// request (backend.Grant.Until). The holder stops a margin earlier, so that it has
// stopped when the service grants the key to the next client.
package trust

import "time"

// Margin returns how long before the end of a grant of ttl the holder stops. It covers
// clock rates that differ by 0.1 % and a timer that fires late on a busy machine.
func Margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 10*time.Millisecond), 500*time.Millisecond) + ttl/1000
}

// Instant is an instant of the local monotonic clock. The clock stands still while the machine
// is suspended, so an Instant has that time too.
type Instant struct {
	time.Time
	suspended time.Duration
}

// Suspended returns for how long the machine has been suspended until now, as far as the system reports
// it (Linux). Tests replace it.
var Suspended = suspended

// Now returns the present instant.
func Now() Instant {
	now := time.Now()
	return Instant{now, Suspended(now)}
}

// After returns now on a clock that did not stand still since i.
func (i Instant) After(now time.Time) time.Time { return now.Add(i.SuspendedBy(now)) }

// SuspendedBy returns for how long the machine has been suspended from i to now. It ignores what
// the two readings of Suspended may differ by on a busy machine, which the margin covers.
func (i Instant) SuspendedBy(now time.Time) time.Duration {
	if d := Suspended(now) - i.suspended; d > 10*time.Millisecond {
		return d
	}
	return 0
}

// Until returns the instant up to which a lease with a TTL is trusted, if the service keeps
// its grant until expires. from is the instant before the request, or for a grant that was
// pushed that of its receipt. The margin is that of the time between them, at most ttl: a
// pushed grant may be much shorter than ttl.
func Until(from, expires time.Time, ttl time.Duration) time.Time {
	return expires.Add(-Margin(min(ttl, max(expires.Sub(from), 0))))
}
