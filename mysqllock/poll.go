package mysqllock

import (
	"math/rand/v2"
	"time"
)

const minPoll = 10 * time.Millisecond

// pollSchedule is how often a waiter reads the row: often after the queue has moved, then
// less often, up to each max.
type pollSchedule struct {
	max, last time.Duration
	place     int
}

// next returns the time until the waiter of s asks again, and whether it then requests the
// key. When the lease of the holder ends the first waiter requests it at once, the others
// 200 ms later.
func (p *pollSchedule) next(s rowState) (d time.Duration, request bool) {
	if s.place != p.place {
		p.last, p.place = 0, s.place
	}
	d = p.backoff()
	left := s.left() + time.Millisecond
	if s.place != 1 {
		left += 200 * time.Millisecond
	}
	if left <= d {
		return max(left, 0), true
	}
	return d, false
}

// backoff returns a random pause, longer each time, up to max.
func (p *pollSchedule) backoff() time.Duration {
	p.last = min(p.last*3/2+minPoll, p.max)
	return p.last/2 + rand.N(p.last/2+1)
}
