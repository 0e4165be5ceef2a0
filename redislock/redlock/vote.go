package redlock

import (
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// vote is the answer of one node to an attempt.
type vote struct {
	state int       // mine, theirs or noVote
	sent  time.Time // of the request
	err   error     // noVote: the reason

	token   uint64        // mine: that of this node
	until   time.Time     // mine: the node certainly keeps the grant until then
	whole   time.Duration // mine: the length of the lease
	ended   uint64        // the greatest token of a grant that has ended: see old
	yielded uint64        // token of a grant whose yield has no answer and may still be executed
	fencing bool          // mine: the greatest token is being written

	holder backend.Holder // theirs
	ticket int64          // theirs: of a holder of this library, else zero
	ends   time.Time      // theirs: end of the lease; zero if never
	first  bool           // theirs: the attempt is the first waiter

	open       int           // requests to acquire without an answer
	answered   chan struct{} // closed when open is zero
	dirty      bool          // a request failed and may be executed later
	queued     bool          // the node has confirmed a place in its queue
	mayRemain  bool          // the node may have a grant or a place of the attempt
	cleaning   bool          // in the background
	freeing    sync.Mutex    // one request to free at a time, to know which one freed
	freed      bool          // by this attempt
	tombstoned bool          // the node may have the attempt's tombstone and refuse it
}

const (
	noVote = iota
	mine
	theirs
)

// close ends an open request.
func (v *vote) close() {
	if v.open--; v.open == 0 {
		close(v.answered)
	}
}

// old reports whether the grant with that token has ended. The tokens of a node rise, and so
// order its answers and notifications, which overtake each other. Its clock does not: it may
// be stepped.
func (v *vote) old(token uint64) bool { return token <= v.ended }

// grant records a grant of the node, unless the grant has ended.
func (v *vote) grant(token uint64, sent, until time.Time, whole time.Duration) {
	if v.old(token) {
		return
	}
	if v.state != mine {
		v.fencing = false
	}
	v.state, v.sent, v.err, v.mayRemain = mine, sent, nil, true
	v.token, v.until, v.whole = max(v.token, token), until, whole
}

// end records that grants up to that token have ended. It returns false if the attempt has a
// later grant.
func (v *vote) end(token uint64) bool {
	v.ended = max(v.ended, token)
	if v.state == mine && !v.old(v.token) {
		return false
	}
	v.state, v.err, v.token, v.fencing = noVote, errNotOurs, 0, false
	return true
}

// yieldPending reports whether a yield without an answer may still give the grant away. A node
// gives away only the grant with the token that the yield names.
func (v *vote) yieldPending() bool { return v.yielded > 0 && v.token <= v.yielded }

// entered reads the reply to a request to wait in the queue. It returns true if the attempt had a place there, and
// the request had to enter it again.
func (v *vote) entered(r protocol.Reply) bool {
	switch r.Status {
	case protocol.Yes:
		return v.queued && r.Num(2) == 1
	case protocol.No:
		again := v.queued && r.Num(6) == 1
		v.queued = true
		return again
	}
	return false
}

// fail records an error. A grant stays valid until its time.
func (v *vote) fail(err error) {
	v.err = err
	if v.state != mine || !time.Now().Before(v.until) {
		v.state, v.token = noVote, 0
	}
}

// tally is the count of votes.
type tally struct {
	mine, theirs, pending int
	rival                 backend.Holder // the holder with the most votes
	rivalVotes            int
	until                 time.Time // mine: a quorum certainly keeps its grants until then
	whole                 time.Duration
	token                 uint64 // mine: the greatest
	agree                 int    // mine: with that token
	earlierTicket         bool   // an answer of this round names a holder with an earlier ticket
}

// stale reports whether a refusal is older than the current round, which the node has not
// answered yet. The caller holds a.mu.
func (a *attempt) stale(v *vote) bool { return v.open > 0 && v.sent.Before(a.roundStart) }

// count counts the votes. The caller holds a.mu.
func (a *attempt) count() (t tally) {
	now := time.Now()
	rivals := map[string]int{}
	var untils []time.Time
	for i, v := range a.votes {
		if v.open > 0 {
			t.pending++
		}
		switch {
		case v.state == mine && !v.yieldPending() && now.Before(v.until) && a.r.clocks.check(i) == nil:
			t.mine++
			untils = append(untils, v.until)
			switch {
			case v.token > t.token:
				t.token, t.agree = v.token, 1
			case v.token == t.token:
				t.agree++
			}
			if t.whole == 0 || v.whole < t.whole {
				t.whole = v.whole
			}
		case v.state == theirs && !a.stale(v):
			t.theirs++
			rivals[v.holder.Owner]++
			if n := rivals[v.holder.Owner]; n > t.rivalVotes {
				t.rivalVotes, t.rival = n, v.holder
			}
			fresh := !v.sent.Before(a.roundStart)
			if fresh && v.ticket != 0 && (v.ticket < a.ticket || v.ticket == a.ticket && v.holder.Owner < a.req.Owner) {
				t.earlierTicket = true
			}
		}
	}
	if t.mine >= a.r.quorum {
		t.until = a.r.untilOf(untils)
	}
	return t
}

// untilOf returns the time until which a quorum keeps its grants.
func (r *Backend) untilOf(all []time.Time) time.Time {
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	return all[r.quorum-1]
}
