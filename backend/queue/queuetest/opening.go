package queuetest

import (
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

const long = 75 // ticks of a TTL that is longer than ProvisionalTTL

// open begins some sequences with operations that lead to what is rare in random ones.
func (s *sequence) open(rnd *rand.Rand) {
	p := rnd.Perm(s.processes)
	if s.disconnects && rnd.IntN(3) == 0 { // a sender that cannot be reached
		s.join(s.attempt(p[0], backend.Share{}, 3), s.attempt(p[1], backend.Share{}, 20), s.attempt(p[1], backend.Share{}, 20))
		s.ops = append(s.ops, op{action: disconnect, process: p[1], attempt: -1})
		s.sleep(8 * tick)
		s.join(1 + rnd.IntN(2))
		return
	}
	switch rnd.IntN(12) {
	case 0: // more waiters of a process than a service looks at
		s.join(s.attempt(rnd.IntN(s.processes), backend.Share{}, long))
		for range queue.Informed - 2 + rnd.IntN(4) {
			s.join(s.attempt(p[0], backend.Share{}, long))
		}
		s.join(s.attempt(p[1], backend.Share{}, long), s.attempt(p[2], backend.Share{}, long))
		s.release(0)
	case 1: // a writer that was asked
		s.join(s.attempt(p[0], backend.Reader, 2*long), s.attempt(p[1], backend.Share{}, 20),
			s.attempt(p[1], backend.Share{}, 20), s.attempt(p[2], backend.Reader, 20))
		if rnd.IntN(3) > 0 {
			s.sleep(queue.ProvisionalTTL + 4*tick)
			s.join(3)
		}
	case 2: // leases that end at the same time
		s.join(s.attempt(p[0], backend.Share{}, 20), s.attempt(p[1], backend.Reader, long),
			s.attempt(p[2], backend.Reader, long), s.attempt(p[0], backend.Share{}, 20), s.attempt(p[1], backend.Share{}, 20))
		s.release(0)
	case 3, 4: // grants that end unclaimed
		share := []backend.Share{{}, backend.Reader, {Weight: 1, Capacity: 2}}[rnd.IntN(3)]
		if !share.Exclusive() && rnd.IntN(2) == 0 {
			s.join(s.attempt(p[0], share, 2*long)) // beside them
		}
		s.join(s.attempt(p[0], backend.Share{}, 3))
		for range 2 + rnd.IntN(3) {
			s.join(s.attempt(p[0], share, 2+rnd.IntN(6)), s.attempt(p[1], share, 2+rnd.IntN(6)),
				s.attempt(p[2], backend.Share{}, 2+rnd.IntN(6)))
		}
		for range 1 + rnd.IntN(4) {
			s.sleep(8 * tick)
			s.ops = append(s.ops, op{action: pass, attempt: -1})
		}
	case 5: // a key that was free in between
		for i := range 2 {
			s.join(s.attempt(p[0], backend.Share{}, 20), s.attempt(p[1], backend.Share{}, 2),
				s.attempt(p[2], backend.Share{}, 20), s.attempt(p[0], backend.Share{}, 20))
			s.release(4 * i)
			if i == 0 {
				s.release(1, 2, 3)
			}
		}
	case 6: // a sender that holds the key, while grants to others end unclaimed
		s.join(s.attempt(p[0], backend.Reader, 2*long), s.attempt(p[1], backend.Share{}, 20), s.attempt(p[2], backend.Reader, 3))
		s.release(1)
		s.sleep(8 * tick)
		s.join(0, s.attempt(p[1], backend.Share{}, 20), s.attempt(p[1], backend.Reader, long))
		s.release(3)
	case 7: // a renewal for less than is left
		s.join(s.attempt(p[0], backend.Share{}, long))
		s.ops = append(s.ops, op{action: renew, process: p[0], attempt: 0, ttl: 20 * tick, flag: rnd.IntN(2) == 0})
		s.join(s.attempt(p[1], backend.Share{}, 20))
	}
}

func (s *sequence) join(attempts ...int) {
	for _, i := range attempts {
		s.ops = append(s.ops, op{action: acquire, process: s.attempts[i].process, attempt: i, mode: queue.Join})
	}
}

func (s *sequence) release(attempts ...int) {
	for _, i := range attempts {
		s.ops = append(s.ops, op{action: release, process: s.attempts[i].process, attempt: i})
	}
}

func (s *sequence) sleep(d time.Duration) {
	s.ops = append(s.ops, op{action: sleep, attempt: -1, ttl: d})
}
