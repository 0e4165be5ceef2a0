package redislock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// ballot is one attempt at all nodes: what each of them says, and what it may still do.
type ballot struct {
	r       *Redlock
	req     backend.Request
	keys    keys
	names   []string
	ticket  int64
	party   string
	meta    string // as it stands in the value: the ticket, and what the caller says of itself
	member  string // of the queues
	queue   string // whether to wait in them
	freeBy  *script
	changed chan struct{}

	mu    sync.Mutex
	votes []vote
	began time.Time // of the last round of questions
	again bool      // ask once more: what was asked may be out of date
	held  bool      // a grant came of it
	over  bool      // given up or released: whatever arrives now is undone
	token uint64
}

func (r *Redlock) newBallot(req backend.Request, queue string) *ballot {
	a := &ballot{
		r: r, req: req, keys: keysOf(lockKey(r.opt.prefix, req.Key)), queue: queue, freeBy: quorumRelease,
		ticket: r.ticket(), party: req.Owner + "@" + r.address,
		changed: make(chan struct{}, 1), votes: make([]vote, len(r.nodes)),
	}
	a.names = r.names(a.keys, req.Owner)
	a.meta = strconv.FormatInt(a.ticket, 10)
	if req.Metadata != "" {
		a.meta += " " + req.Metadata
	}
	a.member = fmt.Sprintf("%s %d %s", a.party, millis(req.TTL), a.meta)
	for i := range a.votes {
		a.votes[i].err = errOverdue
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ballots[req.Owner] = a
	return a
}

// cutTicket splits what newBallot joined.
func cutTicket(meta string) (ticket int64, metadata string) {
	s, metadata, _ := strings.Cut(meta, " ")
	ticket, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, meta
	}
	return ticket, metadata
}

// ask asks every node that has no question of the attempt open.
func (a *ballot) ask() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began, a.again = time.Now(), false
	for i := range a.votes {
		if a.votes[i].open == 0 {
			a.askNode(i, a.queue, uint64(a.ticket))
		}
	}
}

// holderTakes is the queue argument of a holder at a node that it does not hold yet.
const holderTakes = "2"

// askNode sends one request to acquire, under a.mu.
func (a *ballot) askNode(i int, queue string, token uint64) {
	n, v := a.r.nodes[i], &a.votes[i]
	if queue == queueEnter && !n.listens() {
		queue = queueNo // it could not be told of its turn
	}
	if v.open++; v.open == 1 {
		v.answered = make(chan struct{})
	}
	yielded := v.yielded
	token = max(token, yielded)
	if !n.send(func() {
		r, err := n.call(quorumAcquire, a.names, a.r.args(token, a.party, millis(a.req.TTL), queue, a.meta, a.ticket, n.notAfter(a.r.nodeTimeout(a.req.TTL)), yielded)...)
		a.answer(i, r, err)
	}) {
		v.close()
		v.err = backend.ErrClosed
	}
}

// answer takes in what a node says to a request to acquire, however late.
func (a *ballot) answer(i int, r reply, err error) {
	a.mu.Lock()
	v := &a.votes[i]
	v.close()
	v.touched = v.touched || err == nil && (r.status == yes || a.queue != queueNo) || isUncertain(err)
	if err == nil {
		switch r.status {
		case yes, no:
		case wrongType:
			err = wrongTypeError(a.keys.lock, r.str(0))
		case abandoned:
			err = fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
		case late:
			err = errLate
		default:
			err = fmt.Errorf("unexpected status %d", r.status)
		}
	}
	switch {
	case err != nil:
		v.dirty = v.dirty || isUncertain(err)
		v.fail(err)
	case r.us < v.us: // a push told something newer
	case r.status == yes:
		// the server keeps whole milliseconds, rounded up
		v.grant(r.us, r.sent, r.token(), r.sent.Add(min(r.left(), a.req.TTL)), a.req.TTL)
	default:
		v.state, v.us, v.sent, v.err, v.token, v.ends = theirs, r.us, r.sent, nil, 0, time.Time{}
		v.fencing = false
		v.holder = holder(r.str(2), r.token(), r.left())
		v.ticket, v.holder.Metadata = cutTicket(v.holder.Metadata)
		if r.left() >= 0 {
			v.ends = r.sent.Add(r.left())
		}
		v.first = r.num(3) == 1
	}
	over := a.over && v.touched
	a.mu.Unlock()
	a.signal()
	if over {
		a.clean(i)
	}
}

func (a *ballot) signal() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// won returns the grant that the votes make, nil if they make none yet, and their
// count. Fewer than a majority may agree on the greatest token: it is then written to
// where the attempt holds, since the next majority must meet it there.
func (a *ballot) won() (*quorumGrant, tally) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.count()
	if t.mine < a.r.quorum || time.Until(t.until) < t.whole/2 {
		return nil, t
	}
	if t.agree >= a.r.quorum {
		a.held, a.token = true, t.token
		return &quorumGrant{a: a, token: t.token, until: t.until}, t
	}
	for i := range a.votes {
		if v := &a.votes[i]; v.state == mine && v.token < t.token && !v.fencing {
			v.fencing = true
			a.fence(i, t.token)
		}
	}
	return nil, t
}

// fence writes the token at a node, under a.mu.
func (a *ballot) fence(i int, token uint64) {
	n, v := a.r.nodes[i], &a.votes[i]
	v.fencing = n.send(func() {
		r, err := n.call(quorumFence, a.names, a.r.args(token, a.req.Owner)...)
		a.mu.Lock()
		v.fencing = false
		switch {
		case err != nil:
			v.err, v.state = err, silent
		case r.status == yes:
			v.token = max(v.token, token)
		case r.us >= v.us:
			v.state, v.err = silent, errNotOurs
		}
		a.mu.Unlock()
		a.signal()
	})
}

var errNotOurs = errors.New("not ours any more")

// yield gives the votes of a minority to those who came before, at each node to the
// first in its queue.
func (a *ballot) yield() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		v, n := &a.votes[i], a.r.nodes[i]
		if v.state != mine || v.barred() {
			continue
		}
		token, before := v.token, v.yielded
		if n.send(func() {
			r, err := n.call(quorumYield, a.names, a.r.args(token, a.req.Owner, a.member, a.ticket)...)
			a.mu.Lock()
			if !isUncertain(err) && v.yielded == token {
				v.yielded = before // it is over
			}
			switch {
			case err != nil:
				v.err, v.state = err, silent // a poll finds out, and makes it a new grant
			case r.status == 2 || r.us < v.us: // kept, or got back since
			default:
				v.state, v.err, v.token, v.us = silent, errNotOurs, 0, r.us
			}
			a.mu.Unlock()
			a.signal()
		}) {
			v.yielded = token
		}
	}
}

// pushed takes in a grant that was handed over at a node. It is false if it has to
// be returned to the sender.
func (a *ballot) pushed(i int, token uint64, exp int64, whole time.Duration) bool {
	received := time.Now()
	until := a.r.nodes[i].local(exp, received)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	v := &a.votes[i]
	us := exp - whole.Microseconds()
	switch {
	case us < v.us: // older than an answer
		return true
	case until.IsZero() || until.After(received.Add(whole)):
		// The clock is not known, or was stepped: a poll returns the same grant.
		v.state, v.err, v.us, v.touched = silent, errLate, us, true
		a.again = true
	default:
		v.grant(us, received, token, until, whole)
	}
	a.signal()
	return true
}

// told takes in how long the holder's lease at a node lasts, which the first in its
// queue is told.
func (a *ballot) told(i int, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := &a.votes[i]; v.state == theirs {
		v.ends, v.first = time.Now().Add(left), true
	}
	a.signal()
}

// broken takes in that the attempt's grant at a node was taken away. It reports
// whether a majority may not be left.
func (a *ballot) broken(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[i]
	v.state, v.err, v.token = silent, errNotOurs, 0
	a.signal()
	if !a.held || a.over {
		return false
	}
	kept := 0
	for i := range a.votes {
		if s := &a.votes[i]; s.state == mine || s.err != nil && s.err != errNotOurs { //nolint:errorlint // the very value
			kept++ // or perhaps
		}
	}
	return kept < a.r.quorum
}
