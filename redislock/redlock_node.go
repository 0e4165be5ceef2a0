package redislock

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
)

// The scripts that may grant know whether their node has a vote. Those that cannot
// are the same as on a single server.
var (
	quorumAcquire = newScript(luaQuorum, luaQuorumAcquire)
	quorumYield   = newScript(luaQuorum, luaQuorumYield)
	quorumRelease = newScript(luaQuorum, luaQuorumRelease)
	quorumFence   = newScript(luaQuorum, luaQuorumFence)
	quorumFound   = newScript(luaQuorum, luaQuorumFound)
	quorumAbandon = newScript(luaQuorum, luaAbandon)
	quorumBreak   = newScript(luaQuorum, luaBreak)

	quorumScripts = []*script{
		quorumAcquire, quorumYield, quorumRelease, quorumFence, quorumFound, quorumAbandon, quorumBreak,
		renewScript, inspectScript,
	}
)

// Statuses of a node that does not vote.
const (
	mute = -4 // it came back without its memory
	late = -3 // the request arrived when nobody counted on it any more
)

// voter is one of the masters of a Redlock: the connections of a Backend, which is
// asked for scripts and never for locks, and what is known of the server.
type voter struct {
	r    *Redlock
	b    *Backend
	name string

	mu     sync.Mutex
	bounds           // of the server's clock, as was known
	at     time.Time // then; zero before the first answer
	// The last request failed. Only few at a time are then sent to find out more: at
	// a node that hangs they must not pile up.
	failing error
	probes  int
	live    bool      // the subscription is confirmed
	out     error     // why it does not vote; nil if it does
	judged  time.Time // when the request that told so was sent
	told    error     // what was last said of that to the log
	telling bool
}

func (r *Redlock) newNode(client *redis.Client, own bool) *voter {
	o := r.opt
	o.redlock = redlockDefaults
	b := &Backend{
		rdb: client, own: own, opt: o, jobs: make(chan func()), scripts: quorumScripts, address: r.address,
		attempts: map[string]*attempt{}, settled: map[string]struct{}{},
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.subs = newSubscriptions(b)
	return &voter{r: r, b: b, name: client.Options().Addr}
}

// call runs a script, within the client's own timeouts: its answer counts however
// late it comes.
func (n *voter) call(s *script, keys []string, args ...any) (reply, error) {
	probe, err := n.admit()
	if err != nil {
		return reply{}, err
	}
	sent := time.Now()
	r, err := n.b.eval(context.Background(), s, keys, args...)
	n.answered(r, err, sent, probe)
	if err == nil && r.status == mute {
		err = fmt.Errorf("%w: it votes again in %v", errMute, ofMillis(r.num(0)).Round(time.Millisecond))
	}
	return r, err
}

var (
	errMute    = errors.New("no vote: the node came back without its memory")
	errLate    = errors.New("the request arrived too late, and was refused")
	errOverdue = errors.New("no answer in time")
)

const maxProbes = 4

// notAsked is the error of a request that was not sent, since too many that failed
// are on their way.
type notAsked struct{ why string }

func (e notAsked) Error() string { return "not asked, since it fails: " + e.why }

func (n *voter) admit() (probe bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing == nil {
		return false, nil
	}
	if n.probes >= maxProbes {
		return false, notAsked{n.failing.Error()} // which may be uncertain, and this is not
	}
	n.probes++
	return true, nil
}

// answered follows the end of a request. Whether the node votes, the last one tells
// that was sent: those that were under way when it changed may end later.
func (n *voter) answered(r reply, err error, sent time.Time, probe bool) {
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
	if err == nil && r.status == mute {
		err = errMute
	}
	n.out, n.judged = err, sent
	n.tell()
}

// tell says whether the node votes, if it was last told otherwise, under n.mu, which
// it leaves meanwhile: what changes then is said by the one who is telling.
func (n *voter) tell() {
	for !n.telling && (n.out == nil) != (n.told == nil) {
		say := n.r.listener()
		if say == nil {
			return // Notify tells
		}
		what, err := "redlock node "+n.name+" votes again", n.out
		if err != nil {
			what = "redlock node " + n.name + " does not vote"
		}
		n.telling, n.told = true, err
		n.mu.Unlock()
		say(what, err)
		n.mu.Lock()
		n.telling = false
	}
}

// overdue is told when the others decide without this node.
func (n *voter) overdue() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing == nil {
		n.failing = errOverdue
	}
}

// epoch is what local times are counted from.
var epoch = time.Now()

// drift is how far two clocks may run apart: by 500 ppm.
func drift(d time.Duration) time.Duration { return d.Abs() / 2000 }

// observe narrows the bounds of the server's clock, under n.mu. It was read after the
// request was sent and before its answer was received, so the quickest request gives
// the one bound and the quickest answer the other; they need not be of one exchange.
func (n *voter) observe(r reply, received time.Time) {
	us := time.Duration(r.us) * time.Microsecond
	lo, hi := us-received.Sub(epoch), us+time.Microsecond-r.sent.Sub(epoch)
	if !n.at.IsZero() {
		apart := drift(received.Sub(n.at))
		if before, after := n.lo-apart, n.hi+apart; lo <= after && hi >= before { // else it was stepped
			lo, hi = max(lo, before), min(hi, after)
		}
	}
	n.at, n.lo, n.hi = received, lo, hi
}

// bounds of how far a server's clock is ahead of the local time since epoch.
type bounds struct{ lo, hi time.Duration }

func (b bounds) middle() time.Duration { return b.lo + (b.hi-b.lo)/2 }

// clock is what is known of the server's clock, false if nothing is.
func (n *voter) clock() (bounds, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bounds, !n.at.IsZero()
}

// ahead is how far the clock of all these nodes is ahead, by estimate: where the
// bounds of most of them meet, which is as narrow as the best known of them. If those
// of a majority do not meet, the nodes' clocks differ by more than what is not known
// of them, and it is the median. Either way it is no further from the median of the
// clocks than the widest bounds are wide.
func ahead(nodes []bounds) time.Duration {
	best, meet := 0, bounds{}
	for _, b := range nodes { // where some meet begins with the beginning of one
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

// local is the local instant before which the server's clock cannot reach us; zero
// if that cannot be told.
func (n *voter) local(us int64, received time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at.IsZero() {
		return time.Time{}
	}
	return epoch.Add(time.Duration(us)*time.Microsecond - n.hi - drift(received.Sub(n.at)))
}

// notAfter is the server's time after which a request sent now is of no use.
func (n *voter) notAfter(timeout time.Duration) int64 {
	b, known := n.clock()
	if !known {
		return 0
	}
	return (time.Since(epoch) + b.middle() + timeout + notAfterSlack).Microseconds()
}

const notAfterSlack = time.Second // the estimate may be off, and a request may queue for a connection

func (n *voter) listens() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.live
}

// send runs f in the background. It is false after Close.
func (n *voter) send(f func()) bool {
	if !n.b.enter() {
		return false
	}
	n.b.background(f)
	return true
}

// listen keeps the subscription until the node is closed.
func (n *voter) listen() {
	for backoff := 10 * time.Millisecond; n.b.life.Err() == nil; backoff = min(2*backoff, time.Second) {
		if n.receive() {
			backoff = 10 * time.Millisecond
		}
		sleep(n.b.life, backoff/2+jitter(backoff/2))
	}
}

// receive subscribes once and hears until the first error. It reports whether it
// heard anything.
func (n *voter) receive() (heard bool) {
	ps := n.b.rdb.Subscribe(n.b.life)
	defer context.AfterFunc(n.b.life, func() { _ = ps.Close() })()
	defer func() { _ = ps.Close() }() // closed already, perhaps
	ctx, cancel := context.WithTimeout(n.b.life, confirmTime)
	err := ps.Subscribe(ctx, n.b.processChannel())
	cancel()
	limit := answerTime // TCP alone would wait for the confirmation for much longer
	for err == nil {
		var m any
		// Receive and not Channel, which drops messages when it is full
		m, err = ps.ReceiveTimeout(n.b.life, limit)
		switch m := m.(type) {
		case *redis.Message:
			n.r.hear(n, m.Payload)
		case *redis.Subscription:
			heard, limit = true, 0
			n.mu.Lock()
			n.live = true
			n.mu.Unlock()
			n.r.pollNow()
		}
	}
	n.mu.Lock()
	n.live = false
	n.at = time.Time{} // another server may take its place
	n.mu.Unlock()
	return heard
}
