package redlock

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/quorum"
)

// answer is the answer of a node to an attempt.
type answer struct {
	quorum.Answer
	offset offset
}

// tally is the count of the answers of a round.
type tally struct {
	all     []reply[answer]
	mine    []int  // nodes that have granted the key, and whose clocks agree
	token   uint64 // the greatest of mine
	agreed  int    // nodes of mine that have it
	theirs  int    // nodes that have refused it
	awaited int    // nodes that have not answered, and whose last request had an answer

	rival      backend.Holder // the holder with the most votes
	rivalVotes int
	ends       []time.Time // of the leases at the nodes that have refused it, if they end
}

// count counts the answers.
func (s *service) count(all []reply[answer]) (t tally) {
	t.all = all
	offsets, rivals := map[int]offset{}, map[string]int{}
	for i, r := range all {
		switch h := r.value.Holder; {
		case r.overdue():
			if !s.nodes[i].isOut() {
				t.awaited++
			}
		case r.err != nil:
		case r.value.Granted:
			offsets[i] = r.value.offset
		default:
			t.theirs++
			if rivals[h.Owner]++; rivals[h.Owner] > t.rivalVotes {
				t.rival, t.rivalVotes = h, rivals[h.Owner]
			}
			if r.value.Left >= 0 {
				t.ends = append(t.ends, r.value.Sent.Add(r.value.Left))
			}
		}
	}
	t.mine = agreeing(offsets, len(all))
	for _, i := range t.mine {
		switch token := all[i].value.Token; {
		case token > t.token:
			t.token, t.agreed = token, 1
		case token == t.token:
			t.agreed++
		}
	}
	return t
}

// decided reports whether more answers change nothing.
func (t *tally) decided(s *service) bool {
	hopeless := len(t.mine)+t.theirs >= s.need && len(t.mine)+t.awaited < s.need
	return len(t.mine) >= s.need || hopeless && (t.rivalVotes >= s.need || t.rivalVotes+t.awaited < s.need)
}

// err returns the error of a round without a grant.
func (t *tally) err(s *service) error {
	for i, r := range t.all {
		if r.err == nil && r.value.Granted && !slices.Contains(t.mine, i) {
			t.all[i].err = errClock
		}
	}
	return failed(s, "voted", len(t.mine)+t.theirs, t.all)
}

// again returns in how long, from sent, a refused attempt asks again: soon, at random, or when so many leases end that a
// quorum is free.
func (a *attempt) again(t *tally, sent time.Time, soon bool) time.Duration {
	const fewest, most = 4 * time.Millisecond, 6 // the pause doubles
	if soon {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.splits++
		return time.Since(sent) + rand.N(fewest<<min(a.splits, most))
	}
	slices.SortFunc(t.ends, func(a, b time.Time) int { return a.Compare(b) })
	at := max(a.s.need-(len(a.votes)-t.theirs), 1) - 1
	if at >= len(t.ends) {
		return -1
	}
	return max(0, t.ends[at].Sub(sent)) + rand.N(10*time.Millisecond)
}
