package redlock

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// maxClockDifference is how far the clock of a node may be from the median of the nodes'
// clocks. Beyond it the node has no vote: leases at a node end early by a step of its clock.
const maxClockDifference = time.Second

// epoch is the zero of local times.
var epoch = time.Now()

// drift is how much two clocks may differ after d: 500 ppm.
func drift(d time.Duration) time.Duration { return d.Abs() / 2000 }

var errClock = errors.New("no vote")

// clocks are the estimates of the nodes' clocks.
type clocks struct {
	mu  sync.Mutex
	all []clock // in the order of Backend.nodes
}

// clock has the least and the greatest difference of a node's clock and the local time since
// epoch.
type clock struct {
	lo, hi    time.Duration
	at        time.Time // of the last answer; zero if the clock is not known
	differs   time.Time // since when the clock is off; zero if it is not
	suspected bool      // its quarantine has begun for that reason
}

func (c *clock) middle() time.Duration { return c.lo + (c.hi-c.lo)/2 }

// off reports whether the clock certainly differs by more than maxClockDifference.
func (c *clock) off(median time.Duration) bool {
	return !c.at.IsZero() && (c.lo > median+maxClockDifference || c.hi < median-maxClockDifference)
}

// observe narrows the bounds of a node's clock. The node read it after the request was sent
// and before its answer was received, so the fastest request gives one bound and the fastest
// answer the other. An answer that contradicts the bounds replaces them.
//
// observe returns the nodes whose quarantine must begin: their clocks differ from those of a
// quorum that has answered since. Until then it may be the clock of this process that was
// stopped.
func (cs *clocks) observe(i int, r protocol.Reply, received time.Time) (suspects []int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := &cs.all[i]
	us := time.Duration(r.US) * time.Microsecond
	lo, hi := us-received.Sub(epoch), us+time.Microsecond-r.Sent.Sub(epoch)
	apart := drift(received.Sub(c.at))
	if before, after := c.lo-apart, c.hi+apart; !c.at.IsZero() && lo <= after && hi >= before {
		lo, hi = max(lo, before), min(hi, after)
	}
	c.at, c.lo, c.hi = received, lo, hi
	median, known := cs.median()
	if !known {
		return nil
	}
	for i := range cs.all {
		switch c := &cs.all[i]; {
		case !c.off(median):
			c.differs, c.suspected = time.Time{}, false
		case c.differs.IsZero():
			c.differs = received
		case !c.suspected && cs.agree(median, c.differs) > len(cs.all)/2:
			c.suspected = true
			suspects = append(suspects, i)
		}
	}
	return suspects
}

// agree returns how many clocks agree with the median, of nodes that have answered after
// then. The caller holds cs.mu.
func (cs *clocks) agree(median time.Duration, then time.Time) (n int) {
	for i := range cs.all {
		if c := &cs.all[i]; !c.off(median) && c.at.After(then) {
			n++
		}
	}
	return n
}

// median returns the median of the known clocks. It returns false if fewer than a quorum
// agree with it. The caller holds cs.mu.
func (cs *clocks) median() (time.Duration, bool) {
	var middles []time.Duration
	for i := range cs.all {
		if c := &cs.all[i]; !c.at.IsZero() {
			middles = append(middles, c.middle())
		}
	}
	if len(middles) == 0 {
		return 0, false
	}
	slices.Sort(middles)
	m := middles[len(middles)/2]
	return m, cs.agree(m, time.Time{}) > len(cs.all)/2
}

// now returns the median of the nodes' clocks, in µs; 0 if none is known.
func (cs *clocks) now() int64 {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	m, known := cs.median()
	if !known && m == 0 {
		return 0
	}
	return (time.Since(epoch) + m).Microseconds()
}

// check returns an error if the clock of a node differs from those of a quorum.
func (cs *clocks) check(i int) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	m, known := cs.median()
	switch c := &cs.all[i]; {
	case !known:
		return fmt.Errorf("%w: the clocks of too few nodes agree; synchronize the clocks", errClock)
	case c.off(m):
		return fmt.Errorf("%w: its clock differs by %v from those of the other nodes; synchronize the clocks", errClock, (c.middle() - m).Round(time.Millisecond))
	}
	return nil
}

// retry makes the next observation of a clock that differs begin a quarantine.
func (cs *clocks) retry(i int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all[i].suspected = false
}

// local returns the local time before which a node's clock cannot read us; zero if the
// clock is not known.
func (cs *clocks) local(i int, us int64, received time.Time) time.Time {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := &cs.all[i]
	if c.at.IsZero() {
		return time.Time{}
	}
	return epoch.Add(time.Duration(us)*time.Microsecond - c.hi - drift(received.Sub(c.at)))
}

// notAfter returns the time of a node's clock, in µs, after which the node refuses a request
// that is sent now; 0 if the clock is not known.
func (cs *clocks) notAfter(i int, timeout time.Duration) int64 {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := &cs.all[i]
	if c.at.IsZero() {
		return 0
	}
	return (time.Since(epoch) + c.middle() + timeout + notAfterSlack).Microseconds()
}

const notAfterSlack = time.Second // for the error of the estimate, and a wait for a connection
