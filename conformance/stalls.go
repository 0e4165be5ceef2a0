package conformance

import (
	"context"
	"sync"
	"time"
)

// shortStall is that of a machine that is only busy.
const shortStall = 250 * time.Millisecond

// stalls are the times in which this machine stood still: timers were late. They are reported with a failure.
type stalls struct {
	mu  sync.Mutex
	all []stall
}

type stall struct {
	end    time.Time
	lasted time.Duration
}

// watch measures until ctx ends.
func (s *stalls) watch(ctx context.Context) {
	const tick = 20 * time.Millisecond
	for ctx.Err() == nil {
		start := time.Now()
		time.Sleep(tick) // what is measured
		if late := time.Since(start) - tick; late >= shortStall {
			s.mu.Lock()
			s.all = append(s.all, stall{time.Now(), late})
			s.mu.Unlock()
		}
	}
}

// longest returns the longest one that ended after start, and how many there were.
func (s *stalls) longest(start time.Time) (worst time.Duration, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.end.After(start) {
			worst, n = max(worst, one.lasted), n+1
		}
	}
	return worst, n
}
