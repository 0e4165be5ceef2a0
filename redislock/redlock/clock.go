package redlock

import (
	"slices"
	"sync/atomic"
	"time"
)

// maxClockDifference is how far the clocks of two nodes may be apart. The votes of nodes whose clocks differ by more are
// not counted together: leases at a node end early by a step of its clock.
const maxClockDifference = time.Second

// epoch is the zero of local times.
var epoch = time.Now()

// offset has the least and the greatest difference of a node's clock and the local time since epoch.
type offset struct{ lo, hi time.Duration }

// offsetOf returns the offset of a node that read its clock, now, after a request was sent and before the answer was
// received, at this moment.
func offsetOf(now time.Duration, sent time.Time) offset {
	return offset{now - time.Since(epoch), now - sent.Sub(epoch)}
}

// agreeing returns the largest set of nodes of which no two clocks certainly differ, in their order.
func agreeing(offsets map[int]offset, nodes int) (most []int) {
	for _, first := range offsets { // of a set, the one with the least upper bound
		var set []int
		for i := range nodes {
			if o, ok := offsets[i]; ok && o.hi >= first.hi && o.lo <= first.hi+maxClockDifference {
				set = append(set, i)
			}
		}
		if len(set) > len(most) {
			most = set
		}
	}
	return most
}

// clock is the time of the nodes, by the last answers. Tokens begin with it, so that nodes whose counters agree make the
// same token. Safety does not depend on it.
type clock struct{ offset atomic.Int64 }

func (c *clock) set(o offset) { c.offset.Store(int64(o.lo + (o.hi-o.lo)/2)) }

// now returns the time in microseconds.
func (c *clock) now() uint64 {
	return uint64(max(0, (time.Since(epoch) + time.Duration(c.offset.Load())).Microseconds()))
}

// suspect begins a quarantine of the nodes whose clocks differ from all of those of a quorum, once for each time.
func (s *service) suspect(all []reply[answer]) {
	offsets := map[int]offset{}
	for i, r := range all {
		if r.err == nil {
			offsets[i] = r.value.offset
		}
	}
	most := agreeing(offsets, len(all))
	if len(most) < s.need {
		return
	}
	for i, o := range offsets {
		alone := !slices.ContainsFunc(most, func(k int) bool {
			return i == k || len(agreeing(map[int]offset{i: o, k: offsets[k]}, len(all))) > 1
		})
		if !s.nodes[i].suspected.Swap(alone) && alone {
			s.nodes[i].count(true)
		}
	}
}
