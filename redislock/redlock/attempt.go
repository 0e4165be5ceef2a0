package redlock

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// attempt asks every node in rounds and counts the votes. It is granted when a quorum of
// valid votes agrees on one token.
type attempt struct {
	r       *Backend
	req     backend.Request
	keys    protocol.Keys
	names   []string
	ticket  int64
	address string // owner id and process: the first word of the value
	meta    string // the rest of the value: ticket and metadata
	member  string // of the queues
	queue   string // whether to wait in the queues
	freeBy  *protocol.Script
	changed chan struct{}

	mu         sync.Mutex // guards the fields below
	votes      []*vote    // one for each node, in the order of Backend.nodes
	roundStart time.Time  // an older vote is stale while its node has a request open
	askAgain   bool       // a vote may be out of date: begin a round now
	removed    bool       // a node has removed the waiters of this process: the other attempts know it
	granted    bool       // it never becomes false
	withdrawn  bool       // given up, lost or released: later grants are released
	token      uint64
}

func (r *Backend) newAttempt(req backend.Request, queue string) *attempt {
	a := &attempt{
		r: r, req: req, keys: r.keys(req.Key), queue: queue, freeBy: wire.Release,
		ticket: r.ticket(), address: r.proc.OwnerAddress(req.Owner),
		changed: make(chan struct{}, 1),
	}
	a.names = r.names(a.keys, req.Owner)
	a.meta = strconv.FormatInt(a.ticket, 10)
	if req.Metadata != "" {
		a.meta += " " + req.Metadata
	}
	a.member = fmt.Sprintf("%s %d %s", a.address, protocol.Millis(req.TTL), a.meta)
	for range r.nodes {
		a.votes = append(a.votes, &vote{err: errOverdue})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts[req.Owner] = a
	return a
}

// ask begins a round: it asks every node without an open request of the attempt.
func (a *attempt) ask() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removed = a.removed && a.askAgain
	a.roundStart, a.askAgain = time.Now(), false
	for i, v := range a.votes {
		if v.open == 0 {
			a.askNode(i, a.queue, uint64(a.ticket))
		}
	}
}

// Arguments of ACQUIRE: whether the attempt joins the queue.
const (
	noQueue     = "0"
	joinQueue   = "1"
	holderTakes = "2" // of a holder at a node without its grant
)

// askNode sends one request to acquire. The caller holds a.mu.
func (a *attempt) askNode(i int, queue string, token uint64) {
	n, v := a.r.nodes[i], a.votes[i]
	if queue == joinQueue && !n.subscribed() {
		queue = noQueue // the node could not notify it of its turn
	}
	if v.open++; v.open == 1 {
		v.answered = make(chan struct{})
	}
	yielded := v.yielded
	token = max(token, yielded)
	if !n.send(func() {
		r, err := n.call(wire.Acquire, a.names, n.args(token, a.address, protocol.Millis(a.req.TTL), queue, a.meta, a.ticket, a.r.clocks.notAfter(i, a.r.nodeTimeout(a.req.TTL)), yielded)...)
		if queue == noQueue {
			n.follow(a.keys, r.Num(5))
		}
		a.answer(i, queue, r, err)
	}) {
		v.close()
		v.err = backend.ErrClosed
	}
}

// answer handles a reply to a request to acquire, at any time.
func (a *attempt) answer(i int, queue string, r protocol.Reply, err error) {
	a.mu.Lock()
	v := a.votes[i]
	v.close()
	removed := false
	if err == nil && queue == joinQueue {
		removed = v.entered(r) && !a.removed
		a.removed = a.removed || removed
	}
	v.mayRemain = v.mayRemain || err == nil && (r.Status == protocol.Yes || a.queue != noQueue) || isUncertain(err)
	if err == nil {
		switch r.Status {
		case protocol.Yes, protocol.No:
		case wire.WrongType:
			err = wire.CheckType(r, a.keys)
		case wire.Abandoned:
			err = fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
		case wire.Late:
			err = errLate
		default:
			err = fmt.Errorf("unexpected status %d", r.Status)
		}
	}
	switch {
	case errors.Is(err, errQuarantined):
		v.end(math.MaxUint64)
		v.ended = 0 // the node may have lost its counter, and grants nothing for longer than a TTL
		v.err = err
	case err != nil:
		v.dirty = v.dirty || isUncertain(err)
		v.fail(err)
	case r.Status == protocol.Yes:
		// the server rounds up to milliseconds
		v.grant(wire.Token(r), r.Sent, r.Sent.Add(min(wire.Left(r), a.req.TTL)), a.req.TTL)
	case v.end(uint64(r.Num(4))):
		v.state, v.sent, v.err, v.ends = theirs, r.Sent, nil, time.Time{}
		v.holder, v.ticket = wire.Holder(r), wire.Ticket(r)
		if wire.Left(r) >= 0 {
			v.ends = r.Sent.Add(wire.Left(r))
		}
		v.first = r.Num(3) == 1
	}
	withdrawn := a.withdrawn && v.mayRemain
	a.mu.Unlock()
	a.signal()
	if removed {
		a.r.othersAsk(a)
	}
	if withdrawn {
		a.freeInBackground(i)
	}
}

func (a *attempt) signal() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// tryGrant returns a grant if a quorum agrees on one token, and the count of the votes.
//
// If the votes of a quorum have different tokens, tryGrant returns nil and writes the
// greatest token to the nodes with a lower one: the quorum of the next holder may share
// a single node with this one, and must find that token there.
func (a *attempt) tryGrant() (*grant, tally) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.count()
	if t.mine < a.r.quorum || time.Until(t.until) < t.whole/2 {
		return nil, t
	}
	if t.agree >= a.r.quorum {
		a.granted, a.token = true, t.token
		return &grant{a: a, token: t.token, until: t.until}, t
	}
	for i, v := range a.votes {
		if v.state == mine && v.token < t.token && !v.fencing {
			v.fencing = true
			a.fence(i, t.token)
		}
	}
	return nil, t
}

// fence writes the token to a node. The caller holds a.mu.
func (a *attempt) fence(i int, token uint64) {
	n, v := a.r.nodes[i], a.votes[i]
	own := v.token
	v.fencing = n.send(func() {
		r, err := n.call(wire.Fence, a.names, n.args(token, a.req.Owner)...)
		a.mu.Lock()
		v.fencing = false
		switch {
		case err != nil:
			v.err, v.state = err, noVote
		case r.Status == protocol.Yes:
			v.token = max(v.token, token)
		default:
			v.end(own)
		}
		a.mu.Unlock()
		a.signal()
	})
}

var errNotOurs = errors.New("no longer held by this attempt")

// yield gives the votes of a minority to contenders with earlier tickets: each node hands
// its grant to the first waiter of its queue.
func (a *attempt) yield() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, v := range a.votes {
		n := a.r.nodes[i]
		if v.state != mine || v.yieldPending() {
			continue
		}
		token, before := v.token, v.yielded
		if n.send(func() {
			r, err := n.call(wire.Yield, a.names, n.args(token, a.req.Owner, a.member, a.ticket)...)
			n.follow(a.keys, r.Num(0))
			a.mu.Lock()
			if !isUncertain(err) && v.yielded == token {
				v.yielded = before // executed, or certainly not
			}
			switch {
			case err != nil:
				v.err, v.state = err, noVote // the next round finds the outcome, and gets a new token
			case r.Status != 2: // not kept
				v.end(token)
			}
			a.mu.Unlock()
			a.signal()
		}) {
			v.yielded = token
		}
	}
}

// pushed handles a grant that a node handed over. It returns false if the grant must be
// released.
func (a *attempt) pushed(i int, token uint64, exp int64, whole time.Duration) bool {
	received := time.Now()
	until := a.r.clocks.local(i, exp, received)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.withdrawn {
		return false
	}
	v := a.votes[i]
	switch {
	case v.old(token), v.state == mine && token <= v.token: // older than an answer
		return true
	case until.After(received.Add(whole)), !until.After(received):
		// The clock is not known, or was stepped: the next round returns the same grant.
		v.state, v.err, v.mayRemain = noVote, errLate, true
		a.askAgain = true
	default:
		v.grant(token, received, until, whole)
	}
	a.signal()
	return true
}

// leaseChanged handles the remaining lease of the holder, which a node sends to the first
// waiter of its queue.
func (a *attempt) leaseChanged(i int, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := a.votes[i]; v.state == theirs {
		v.ends, v.first = time.Now().Add(left), true
	}
	a.signal()
}

// broken handles a break of the attempt's grant at a node. It reports whether the attempt
// may have lost its quorum.
func (a *attempt) broken(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.votes[i]
	v.end(v.token)
	a.signal()
	if !a.granted || a.withdrawn {
		return false
	}
	kept := 0
	for _, s := range a.votes {
		if s.state == mine || s.err != nil && s.err != errNotOurs { //nolint:errorlint // the very value
			kept++ // perhaps
		}
	}
	return kept < a.r.quorum
}
