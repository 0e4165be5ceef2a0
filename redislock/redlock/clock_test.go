package redlock

import (
	"slices"
	"testing"
	"time"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// A fast request and a fast answer each narrow the bounds of a server's clock. Slow exchanges
// do not widen them. An exchange that contradicts them replaces them.
func TestNodeClock(t *testing.T) {
	cs := &clocks{all: make([]clock, 1)}
	n := &cs.all[0]
	base := time.Now().Add(-time.Second)
	const ahead = 50 * 365 * 24 * time.Hour // of the local time since epoch
	exchange := func(after, request, answer, step time.Duration) time.Time {
		sent := base.Add(after)
		read := sent.Add(request)
		cs.observe(0, protocol.Reply{Sent: sent, US: (read.Sub(epoch) + ahead + step).Microseconds()}, read.Add(answer))
		return read.Add(answer)
	}
	within := func(what string, want, d time.Duration) {
		t.Helper()
		if off := n.lo + (n.hi-n.lo)/2 - want; off.Abs() > d {
			t.Errorf("%s: the estimate is off by %v, want at most %v", what, off, d)
		}
		if n.lo > want || n.hi < want {
			t.Errorf("%s: it lies outside of %v to %v", what, n.lo-want, n.hi-want)
		}
	}
	const ms = time.Millisecond
	exchange(0, 10*ms, 10*ms, 0)
	within("one", ahead, ms)
	exchange(100*ms, 30*ms, ms, 0)
	exchange(200*ms, ms, 30*ms, 0)
	within("a quick request and a quick answer", ahead, ms)
	exchange(300*ms, 5*ms, 45*ms, 0)
	received := exchange(400*ms, 45*ms, 5*ms, 0)
	within("slow ones", ahead, ms)
	// pushed now, with an expiry in a second on the server's clock
	expires := received.Add(time.Second)
	until := cs.local(0, (expires.Sub(epoch) + ahead).Microseconds(), received)
	if late := until.Sub(expires); late > 0 || late < -3*ms {
		t.Errorf("a pushed expiry is taken for %v later than it is", late)
	}
	exchange(500*ms, 20*ms, 20*ms, time.Hour)
	within("stepped forward", ahead+time.Hour, ms)
	exchange(600*ms, 10*ms, 10*ms, 0)
	within("stepped back", ahead, ms)
}

// The estimate of the nodes' clocks is the median. A node whose clock differs has no vote, and
// a quarantine when a quorum has contradicted it.
func TestRedlockClocks(t *testing.T) {
	const hour = time.Hour
	for what, c := range map[string]struct {
		offsets []time.Duration
		off     []int // nodes whose clocks differ
		none    bool  // too few agree
	}{
		"all agree":               {offsets: []time.Duration{0, time.Second, 0}},
		"one is ahead":            {offsets: []time.Duration{0, 0, hour}, off: []int{2}},
		"one is behind":           {offsets: []time.Duration{-hour, 0, 0}, off: []int{0}},
		"two of five":             {offsets: []time.Duration{hour, 0, hour, 0, 0}, off: []int{0, 2}},
		"two of five, both ways":  {offsets: []time.Duration{hour, 0, -hour, 0, 0}, off: []int{0, 2}},
		"each is of its own mind": {offsets: []time.Duration{0, hour, 2 * hour}, none: true},
	} {
		cs := &clocks{all: make([]clock, len(c.offsets))}
		var suspects []int
		for range 3 {
			for i, d := range c.offsets {
				sent := time.Now()
				r := protocol.Reply{Sent: sent, US: (hour + sent.Sub(epoch) + d).Microseconds()}
				suspects = append(suspects, cs.observe(i, r, sent.Add(time.Millisecond))...)
			}
		}
		for i := range c.offsets {
			want := c.none || slices.Contains(c.off, i)
			if err := cs.check(i); (err != nil) != want {
				t.Errorf("%s: node %d: %v", what, i, err)
			}
		}
		if slices.Sort(suspects); !slices.Equal(suspects, c.off) {
			t.Errorf("%s: suspects %v, want %v", what, suspects, c.off)
		}
	}
}

// After a pause of this process, in which its clock stood still, every node seems to be ahead.
func TestRedlockClockOfThisProcess(t *testing.T) {
	cs := &clocks{all: make([]clock, 3)}
	for _, d := range []time.Duration{0, time.Hour} {
		for i := range cs.all {
			sent := time.Now()
			r := protocol.Reply{Sent: sent, US: (time.Hour + sent.Sub(epoch) + d).Microseconds()}
			if suspects := cs.observe(i, r, sent.Add(time.Millisecond)); suspects != nil {
				t.Errorf("suspects: %v", suspects)
			}
		}
	}
	for i := range cs.all {
		if err := cs.check(i); err != nil {
			t.Error(err)
		}
	}
}
