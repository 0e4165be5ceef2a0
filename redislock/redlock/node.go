package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/quorum"
)

// node is one of the independent masters.
type node struct {
	quorum.Node
	s    *service
	name string

	suspected atomic.Bool   // its clock differs
	probes    chan struct{} // requests to acquire while it does not vote, so that they do not pile up

	leftovers leftovers

	mu       sync.Mutex // guards the quarantine
	counting bool
	id       int64         // of the quarantine that this process has seen last
	passed   time.Duration // of it, at the time at
	at       time.Time

	outage sync.Mutex    // guards the fields below, also during a report
	out    error         // why the node does not vote; nil if it votes
	back   chan struct{} // closed when it votes again; nil if out is
	judged time.Time     // when the request was sent whose answer set out
	said   bool          // that it does not vote
}

// report records how a request has ended. The request that was sent last decides whether the node votes: earlier ones
// may end later.
func (n *node) report(err error, sent time.Time) {
	n.outage.Lock()
	defer n.outage.Unlock()
	if errors.Is(err, backend.ErrClosed) || sent.Before(n.judged) {
		return
	}
	if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrInvalid) && !errors.Is(err, errOtherSet) {
		err = nil // the node has answered
	}
	switch {
	case err != nil && n.out == nil:
		n.back = make(chan struct{})
	case err == nil && n.out != nil:
		close(n.back)
		n.back = nil
	}
	n.out, n.judged = err, sent
	n.reportStatus()
}

const maxProbes = 4

// enter waits, while the node does not vote, until fewer than maxProbes requests to acquire are in flight. It returns
// false if ctx ends before.
func (n *node) enter(ctx context.Context) (leave func(), ok bool) {
	n.outage.Lock()
	back := n.back
	n.outage.Unlock()
	if back == nil {
		return func() {}, true
	}
	select {
	case n.probes <- struct{}{}:
		return func() { <-n.probes }, true
	case <-back:
		return func() {}, true
	case <-ctx.Done():
		return nil, false
	}
}

// reportStatus reports whether the node votes, if that has changed. The caller holds n.outage.
func (n *node) reportStatus() {
	report := n.s.status.Load()
	switch {
	case report == nil || n.said == (n.out != nil): // ReportStatus reports it later
	case n.said:
		n.said = false
		(*report)("redlock node "+n.name+" votes again", nil)
	default:
		n.said = true
		(*report)("redlock node "+n.name+" does not vote", n.out)
	}
}

func (n *node) isOut() bool {
	n.outage.Lock()
	defer n.outage.Unlock()
	return n.out != nil
}

// Released implements quorum.Events.
func (n *node) Released(key, owner string, left time.Duration, processes int) {
	n.s.announced(key, owner, left, processes)
}

// Lost implements quorum.Events.
func (n *node) Lost(owner string) {
	a := n.s.known(owner)
	if a == nil {
		return
	}
	if certain, held := a.lost(); certain {
		n.s.events.Lost(owner)
		if held {
			a.endEverywhere()
		}
	}
}

// Interrupted implements quorum.Events.
func (n *node) Interrupted() { n.s.events.Interrupted("") }
