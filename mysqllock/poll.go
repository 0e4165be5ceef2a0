package mysqllock

import (
	"math/rand/v2"
	"time"
)

const minPoll = 10 * time.Millisecond

// pollSchedule is how often a waiter asks: often at first, then less often, up to each max.
type pollSchedule struct{ max, last time.Duration }

// backoff returns a random pause, longer each time, up to max.
func (p *pollSchedule) backoff() time.Duration {
	p.last = min(p.last*3/2+minPoll, p.max)
	return p.last/2 + rand.N(p.last/2+1)
}
