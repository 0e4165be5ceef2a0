package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// node is one of the independent masters.
type node struct {
	r    *Backend
	srv  *server.Server
	name string

	mu     sync.Mutex
	bounds           // of the server's clock, at the time at
	at     time.Time // zero before the first answer
	// failing is the error of the last request, nil if it succeeded. While it is set, at
	// most maxProbes requests are in flight, so that they do not pile up at a node that
	// hangs.
	failing error
	probes  int

	live      bool      // the subscription is confirmed
	out       error     // why the node does not vote; nil if it votes
	judged    time.Time // when the request was sent whose answer set out
	reported  error     // the value of out that was last reported
	reporting bool
}

func (r *Backend) newNode(client *redis.Client, own bool) *node {
	return &node{r: r, srv: server.New(client, own), name: client.Options().Addr}
}

// call runs a script within the timeouts of the client. A late answer counts too.
func (n *node) call(s *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	probe, err := n.admit()
	if err != nil {
		return protocol.Reply{}, err
	}
	sent := time.Now()
	r, err := n.srv.Eval(context.Background(), s, keys, args...)
	n.answered(r, err, sent, probe)
	if err == nil && r.Status == quarantined {
		err = fmt.Errorf("%w: it votes again in %v", errQuarantined, protocol.OfMillis(r.Num(0)).Round(time.Millisecond))
	}
	return r, err
}

var (
	errQuarantined = errors.New("no vote: the node restarted without its data")
	errLate        = errors.New("the request arrived too late and was refused")
	errOverdue     = errors.New("no answer in time")
)

const maxProbes = 4

// notAsked is the error of a request that was not sent, because maxProbes requests to a
// failing node are in flight.
type notAsked struct{ why string }

func (e notAsked) Error() string { return "not asked, because it fails: " + e.why }

func (n *node) admit() (probe bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing == nil {
		return false, nil
	}
	if n.probes >= maxProbes {
		return false, notAsked{n.failing.Error()} // the text only: the outcome of this request is known
	}
	n.probes++
	return true, nil
}

// answered handles the end of a request. The request that was sent last decides whether the
// node votes: earlier ones may end later.
func (n *node) answered(r protocol.Reply, err error, sent time.Time, probe bool) {
	received := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failing = err
	if probe {
		n.probes--
	}
	if err == nil {
		n.observe(r, received)
	}
	if errors.Is(err, backend.ErrClosed) || sent.Before(n.judged) {
		return
	}
	if err == nil && r.Status == quarantined {
		err = errQuarantined
	}
	n.out, n.judged = err, sent
	n.reportStatus()
}

// reportStatus reports whether the node votes, if that has changed. The caller holds n.mu,
// which reportStatus releases during the report. A change meanwhile is reported by the same
// loop.
func (n *node) reportStatus() {
	for !n.reporting && (n.out == nil) != (n.reported == nil) {
		report := n.r.statusReporter()
		if report == nil {
			return // ReportStatus reports it later
		}
		what, err := "redlock node "+n.name+" votes again", n.out
		if err != nil {
			what = "redlock node " + n.name + " does not vote"
		}
		n.reporting, n.reported = true, err
		n.mu.Unlock()
		report(what, err)
		n.mu.Lock()
		n.reporting = false
	}
}

// overdue marks a node without which the others have decided.
func (n *node) overdue() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing == nil {
		n.failing = errOverdue
	}
}

// epoch is the zero of local times.
var epoch = time.Now()

// drift is how much two clocks may differ after d: 500 ppm.
func drift(d time.Duration) time.Duration { return d.Abs() / 2000 }

// observe narrows the bounds of the server's clock. The server read it after the request was
// sent and before its answer was received, so the fastest request gives one bound and the
// fastest answer the other. The caller holds n.mu.
func (n *node) observe(r protocol.Reply, received time.Time) {
	us := time.Duration(r.US) * time.Microsecond
	lo, hi := us-received.Sub(epoch), us+time.Microsecond-r.Sent.Sub(epoch)
	if !n.at.IsZero() {
		apart := drift(received.Sub(n.at))
		if before, after := n.lo-apart, n.hi+apart; lo <= after && hi >= before { // else the clock was stepped
			lo, hi = max(lo, before), min(hi, after)
		}
	}
	n.at, n.lo, n.hi = received, lo, hi
}

// bounds are the least and the greatest difference of a server's clock and the local time
// since epoch.
type bounds struct{ lo, hi time.Duration }

func (b bounds) middle() time.Duration { return b.lo + (b.hi-b.lo)/2 }

// clock returns the bounds of the server's clock, false before the first answer.
func (n *node) clock() (bounds, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bounds, !n.at.IsZero()
}

// ahead estimates the difference of the clocks of these nodes and the local time. If the
// bounds of a majority intersect, it is the middle of the intersection, else the median of
// the middles. In both cases its distance from the median of the clocks is at most the
// width of the widest bounds.
func ahead(nodes []bounds) time.Duration {
	best, meet := 0, bounds{}
	for _, b := range nodes { // an intersection begins where one of the bounds begins
		n, m := 0, bounds{b.lo, b.hi}
		for _, o := range nodes {
			if o.lo <= b.lo && b.lo <= o.hi {
				n++
				m.hi = min(m.hi, o.hi)
			}
		}
		if n > best || n == best && m.hi-m.lo < meet.hi-meet.lo {
			best, meet = n, m
		}
	}
	if best > len(nodes)/2 {
		return meet.middle()
	}
	slices.SortFunc(nodes, func(a, b bounds) int { return cmp.Compare(a.middle(), b.middle()) })
	return nodes[len(nodes)/2].middle()
}

// local returns the local time before which the server's clock cannot read us; zero if the
// clock is not known.
func (n *node) local(us int64, received time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at.IsZero() {
		return time.Time{}
	}
	return epoch.Add(time.Duration(us)*time.Microsecond - n.hi - drift(received.Sub(n.at)))
}

// notAfter returns the server time, in µs, after which the server refuses a request that is
// sent now; 0 if the clock is not known.
func (n *node) notAfter(timeout time.Duration) int64 {
	b, known := n.clock()
	if !known {
		return 0
	}
	return (time.Since(epoch) + b.middle() + timeout + notAfterSlack).Microseconds()
}

const notAfterSlack = time.Second // for the error of the estimate, and a wait for a connection

func (n *node) subscribed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.live
}

// send runs f in the background. It is false after Close.
func (n *node) send(f func()) bool { return n.srv.Send(f) }

// keepSubscribed keeps the subscription until the node is closed.
func (n *node) keepSubscribed() {
	for backoff := 10 * time.Millisecond; n.srv.Life.Err() == nil; backoff = min(2*backoff, time.Second) {
		if n.subscribe() {
			backoff = 10 * time.Millisecond
		}
		server.Sleep(n.srv.Life, backoff/2+jitter(backoff/2))
	}
}

// subscribe subscribes once and handles messages until the first error. It reports whether
// the subscription was confirmed.
func (n *node) subscribe() (confirmed bool) {
	ps := n.srv.Client.Subscribe(n.srv.Life)
	defer context.AfterFunc(n.srv.Life, func() { _ = ps.Close() })()
	defer func() { _ = ps.Close() }() // it may be closed already
	ctx, cancel := context.WithTimeout(n.srv.Life, server.ConfirmTimeout)
	err := ps.Subscribe(ctx, n.r.proc.Channel())
	cancel()
	limit := server.ConfirmTimeout / 2 // TCP would wait for much longer
	for err == nil {
		var m any
		// Channel would drop messages when it is full.
		m, err = ps.ReceiveTimeout(n.srv.Life, limit)
		switch m := m.(type) {
		case *redis.Message:
			n.r.handleMessage(n, m.Payload)
		case *redis.Subscription:
			confirmed, limit = true, 0
			n.mu.Lock()
			n.live = true
			n.mu.Unlock()
			n.r.pollNow()
		}
	}
	n.mu.Lock()
	n.live = false
	n.at = time.Time{} // another server may get the address
	n.mu.Unlock()
	return confirmed
}
