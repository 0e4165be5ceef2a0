package redislock

import (
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// vote is what one node says of the attempt.
type vote struct {
	state int       // mine, theirs or silent
	us    int64     // the server's time of that
	sent  time.Time // of the request that told it
	err   error     // why it is silent

	token   uint64        // mine: that of this node
	until   time.Time     // mine: kept for certain till then
	whole   time.Duration // mine: what was granted
	yielded uint64        // that of a grant whose yield has no answer, and may be executed at any time
	fencing bool          // mine, and the greatest token is being written

	holder backend.Holder // theirs
	ticket int64          // theirs, if ours wrote it
	ends   time.Time      // theirs: when the lease there ends; zero if never
	first  bool           // in the queue there

	open     int           // requests to acquire without an answer
	answered chan struct{} // closed when there are none any more
	dirty    bool          // one of them failed, and may be executed later
	touched  bool          // something of the attempt may be there
	cleaning bool
	freeing  sync.Mutex // one request to free at a time, so that it is known who freed
	freed    bool       // by this attempt itself
	buried   bool       // the attempt's tombstone may be there: it gets nothing from that node any more
}

const (
	silent = iota
	mine
	theirs
)

// close ends an open request.
func (v *vote) close() {
	if v.open--; v.open == 0 {
		close(v.answered)
	}
}

func (v *vote) grant(us int64, sent time.Time, token uint64, until time.Time, whole time.Duration) {
	if v.state != mine {
		v.fencing = false
	}
	v.state, v.us, v.sent, v.err, v.touched = mine, us, sent, nil, true
	v.token, v.until, v.whole = max(v.token, token), until, whole
}

// barred is whether a yield may still give the grant away. The node gives away only
// the grant with the token that the yield names.
func (v *vote) barred() bool { return v.yielded > 0 && v.token <= v.yielded }

// fail keeps a grant: it is certain until its time.
func (v *vote) fail(err error) {
	v.err = err
	if v.state != mine || !time.Now().Before(v.until) {
		v.state, v.token = silent, 0
	}
}

// tally is the count of votes.
type tally struct {
	mine, theirs, pending int
	most                  int            // votes of the strongest rival
	rival                 backend.Holder // it
	until                 time.Time      // mine: a majority is kept for certain till then
	whole                 time.Duration
	token                 uint64 // mine: the greatest
	agree                 int    // mine: with that token
	lower                 bool   // a fresh refusal names one who came before
}

// stale is whether a refusal is older than the last round of questions, which the node
// has yet to answer, under a.mu: it would decide that round before it has begun.
func (a *ballot) stale(v *vote) bool { return v.open > 0 && v.sent.Before(a.began) }

// count counts, under a.mu.
func (a *ballot) count() (t tally) {
	now := time.Now()
	rivals := map[string]int{}
	var untils []time.Time
	for i := range a.votes {
		v := &a.votes[i]
		if v.open > 0 {
			t.pending++
		}
		switch {
		case v.state == mine && !v.barred() && now.Before(v.until):
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
			if n := rivals[v.holder.Owner]; n > t.most {
				t.most, t.rival = n, v.holder
			}
			fresh := !v.sent.Before(a.began)
			if fresh && v.ticket != 0 && (v.ticket < a.ticket || v.ticket == a.ticket && v.holder.Owner < a.req.Owner) {
				t.lower = true
			}
		}
	}
	if q := a.r.quorum; t.mine >= q {
		slices.SortFunc(untils, func(a, b time.Time) int { return b.Compare(a) })
		t.until = untils[q-1]
	}
	return t
}
