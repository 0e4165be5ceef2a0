package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// node is one of the independent masters.
type node struct {
	r    *Backend
	i    int // in Backend.nodes
	srv  *server.Server
	name string

	mu         sync.Mutex
	quarantine quarantine
	followed   map[string]time.Time // by key of the lock: when look looks at it
	// failing is the error of the last request, nil if it succeeded. While it is set, at
	// most maxProbes requests are in flight, so that they do not pile up at a node that
	// hangs.
	failing error
	probes  int

	live      bool          // the subscription is confirmed
	listener  *redis.PubSub // while it is
	received  int           // messages and confirmations
	checking  bool
	replaced  time.Time // when the node replied last that it cannot write, and the subscription was closed
	out       error     // why the node does not vote; nil if it votes
	judged    time.Time // when the request was sent whose answer set out
	reported  error     // the value of out that was last reported
	reporting bool
}

// quarantine is what this process knows of the last quarantine of a node.
type quarantine struct {
	id     int64         // of the marker
	served time.Duration // the part that had passed at the time at
	at     time.Time
}

// passed returns the part that has certainly passed. The clock of this process counts it: that
// of a node that has just started may be stepped.
func (q quarantine) passed() time.Duration {
	if q.id == 0 {
		return 0
	}
	return q.served + time.Since(q.at)
}

func (r *Backend) newNode(i int, client *redis.Client) *node {
	return &node{r: r, i: i, srv: server.New(client), name: client.Options().Addr, followed: map[string]time.Time{}}
}

// args returns the arguments of a quorum script: its own between the common ones.
func (n *node) args(token uint64, own ...any) []any {
	o := n.r.opt
	durable := "0"
	if o.durable {
		durable = "1"
	}
	n.mu.Lock()
	q := n.quarantine
	n.mu.Unlock()
	a := append([]any{n.r.proc.ChannelPrefix()}, own...)
	return append(a, protocol.Millis(n.r.quarantineTime()), durable, o.set, q.id, q.passed().Milliseconds(), o.retention.Milliseconds(), token)
}

// call runs a script within the timeouts of the client. A late answer counts too.
func (n *node) call(s *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	probe, err := n.admit()
	if err != nil {
		return protocol.Reply{}, err
	}
	sent := time.Now()
	r, err := n.eval(context.Background(), s, keys, args...)
	n.answered(r, err, sent, probe)
	n.doubt(err)
	if err == nil {
		err = n.voteless(r)
	}
	return r, err
}

// eval runs a script, and again while that removes dead waiters.
func (n *node) eval(ctx context.Context, s *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	for {
		r, err := n.srv.Eval(ctx, s, keys, args...)
		if err != nil || r.Status != wire.Again {
			return r, err
		}
	}
}

// voteless returns the reason why a node did not vote, if it has one.
func (n *node) voteless(r protocol.Reply) error {
	switch r.Status {
	case wire.Quarantined:
		return fmt.Errorf("%w: it votes again in %v", errQuarantined, protocol.OfMillis(r.Num(0)).Round(time.Millisecond))
	case wire.OtherSet:
		return errOtherSet
	}
	return nil
}

var (
	errQuarantined = errors.New("no vote: the node restarted without its data, or its clock was stepped")
	errOtherSet    = fmt.Errorf("%w set of nodes: the node belongs to another set; give all clients the same hosts, or the same set parameter; "+
		"to change the hosts see Changing the nodes in docs/backends/redlock.md", backend.ErrInvalid)
	errLate    = errors.New("the request arrived too late and was refused")
	errOverdue = errors.New("no answer in time")
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
	if err == nil {
		for _, i := range n.r.clocks.observe(n.i, r, received) {
			n.r.nodes[i].suspect()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failing = err
	if probe {
		n.probes--
	}
	if errors.Is(err, backend.ErrClosed) || sent.Before(n.judged) {
		return
	}
	if err == nil && r.Status == wire.Quarantined {
		q := quarantine{r.Num(1), n.r.quarantineTime() - protocol.OfMillis(r.Num(0)), received}
		if known := n.quarantine; q.id != known.id || q.served > known.passed() {
			n.quarantine = q
		}
	}
	if err == nil {
		err = n.voteless(r)
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

// suspect begins a quarantine of a node whose clock was stepped: the step may have ended
// leases there.
func (n *node) suspect() {
	n.send(func() {
		if _, err := n.call(wire.Found, n.r.names(protocol.Keys{}, ""), n.args(0, "", "0", "1")...); err != nil {
			n.r.clocks.retry(n.i)
		}
	})
}

// overdue marks a node without which the others have decided.
func (n *node) overdue() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing == nil {
		n.failing = errOverdue
	}
}

func (n *node) subscribed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.live
}

// send runs f in the background. It is false after Close.
func (n *node) send(f func()) bool { return n.srv.Go(f) }

// keepSubscribed keeps the subscription until the node is closed.
func (n *node) keepSubscribed() {
	for backoff := 10 * time.Millisecond; n.srv.Context().Err() == nil; backoff = min(2*backoff, time.Second) {
		if n.subscribe() {
			backoff = 10 * time.Millisecond
		}
		server.Sleep(n.srv.Context(), backoff/2+jitter(backoff/2))
	}
}

// subscribe subscribes once and handles messages until the first error. It reports whether
// the subscription was confirmed.
func (n *node) subscribe() (confirmed bool) {
	ps := n.srv.Client.Subscribe(n.srv.Context())
	defer context.AfterFunc(n.srv.Context(), func() { _ = ps.Close() })()
	defer func() { _ = ps.Close() }() // it may be closed already
	ctx, cancel := context.WithTimeout(n.srv.Context(), server.ConfirmTimeout)
	err := ps.Subscribe(ctx, n.r.proc.Channel())
	cancel()
	limit := server.ConfirmTimeout / 2 // TCP would wait for much longer
	for err == nil {
		var m any
		// Channel would drop messages when it is full.
		m, err = ps.ReceiveTimeout(n.srv.Context(), limit)
		n.mu.Lock()
		n.received++
		n.mu.Unlock()
		switch m := m.(type) {
		case *redis.Message:
			n.r.handleMessage(n, m.Payload)
		case *redis.Subscription:
			confirmed, limit = true, 0
			n.mu.Lock()
			again := n.live
			n.live, n.listener = true, ps
			n.mu.Unlock()
			if !again {
				n.r.pollNow()
			}
		}
	}
	n.mu.Lock()
	n.live, n.listener = false, nil
	n.mu.Unlock()
	return confirmed
}

// doubt handles the error of a request. The subscription is replaced if the node cannot write, because another one
// may have its name, and checked if the request had no reply: its connection may be as dead as that of the request.
func (n *node) doubt(err error) {
	n.mu.Lock()
	ps, before := n.listener, n.received
	check := ps != nil && !n.checking && server.TimedOut(err)
	n.checking = n.checking || check
	replace := ps != nil && server.CannotWrite(err) && time.Since(n.replaced) > time.Second
	if replace {
		n.replaced = time.Now()
	}
	n.mu.Unlock()
	switch {
	case replace:
		_ = ps.Close() // it may be closed already
	case check:
		n.srv.Go(func() { n.check(ps, before) })
	}
}

// check ends a subscription on which nothing arrives after it is made once more.
func (n *node) check(ps *redis.PubSub, before int) {
	ctx, cancel := context.WithTimeout(n.srv.Context(), server.ConfirmTimeout/2)
	defer cancel()
	err := ps.Subscribe(ctx, n.r.proc.Channel())
	if err == nil {
		<-ctx.Done()
	}
	n.mu.Lock()
	dead := n.received == before
	n.checking = false
	n.mu.Unlock()
	if err != nil || dead {
		_ = ps.Close() // it may be closed already
	}
}
