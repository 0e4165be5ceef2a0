package redlock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/redisurl"
)

// Backend is a driver over several independent masters, of which a majority must agree. It
// is safe for concurrent use.
type Backend struct {
	nodes  []*node
	clocks clocks
	quorum int
	opt    options
	proc   protocol.Process // the same at all nodes
	caps   backend.Capabilities

	life context.Context // ends with Close
	end  context.CancelFunc

	mu       sync.Mutex
	tickets  int64               // the last ticket
	attempts map[string]*attempt // by owner id, until they have ended
	report   func(string, error) // set by ReportStatus
}

var (
	_ backend.Backend        = (*Backend)(nil)
	_ backend.Waiter         = (*Backend)(nil)
	_ backend.Inspector      = (*Backend)(nil)
	_ backend.Lister         = (*Backend)(nil)
	_ backend.Breaker        = (*Backend)(nil)
	_ backend.Pinger         = (*Backend)(nil)
	_ backend.StatusReporter = (*Backend)(nil)
)

// New returns a backend that uses the caller's clients, each of an independent master:
// three or more, preferably an odd number. It sends requests to all nodes, for at most
// 10 s, and succeeds if a majority answers. The backend never closes the clients. Their
// read timeouts bound how long a request to a node that hangs occupies a connection.
func New(clients []redis.UniversalClient, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	masters := make([]*redis.Client, len(clients))
	for i, c := range clients {
		m, ok := c.(*redis.Client)
		if !ok || m == nil {
			return nil, backend.Invalid("client of a Redlock", fmt.Sprintf("%T", c), "a *redis.Client of one master")
		}
		masters[i] = m
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.openTimeout)
	defer cancel()
	return open(ctx, masters, o)
}

func open(ctx context.Context, clients []*redis.Client, o options) (*Backend, error) {
	if len(clients) < redisurl.MinNodes {
		return nil, backend.Invalid("number of nodes of a Redlock", len(clients), fmt.Sprintf("%d or more, preferably an odd number", redisurl.MinNodes))
	}
	r := &Backend{
		quorum: len(clients)/2 + 1, opt: o, proc: protocol.NewProcess(o.prefix, protocol.PublishAddress),
		attempts: map[string]*attempt{},
	}
	r.life, r.end = context.WithCancel(context.Background())
	for i, c := range clients {
		r.nodes = append(r.nodes, r.newNode(i, c))
	}
	r.clocks.all = make([]clock, len(clients))
	if r.opt.set == "" {
		var addrs []string
		for _, n := range r.nodes {
			addrs = append(addrs, n.name)
		}
		slices.Sort(addrs)
		r.opt.set = strings.Join(addrs, ",")
	}
	r.opt.set = fmt.Sprintf("%x", sha256.Sum256([]byte(r.opt.set)))[:16]
	found, err := r.probeNodes(ctx)
	if err != nil {
		_ = r.Close(ctx) // err is the one that matters
		return nil, err
	}
	r.caps = r.capabilities(found)
	return r, nil
}

// keys returns the keys of the lock of that name.
func (r *Backend) keys(name string) protocol.Keys {
	return keysOf(protocol.LockKey(r.opt.prefix, name))
}

// keysOf returns the keys of the lock whose own key is lock. Each lock has its own fence counter.
func keysOf(lock string) protocol.Keys {
	return protocol.Keys{Lock: lock, Queue: "{" + lock + "}:q", Fence: "{" + lock + "}:f"}
}

// names returns the keys of the scripts: those of the lock, and the node's marker.
func (r *Backend) names(k protocol.Keys, owner string) []string {
	return []string{k.Lock, k.Queue, k.Fence, k.Tombstone(owner), markerKey(r.opt.prefix)}
}

// markerKey returns the key of the marker. No lock has it, because no lock has an empty name.
func markerKey(prefix string) string {
	if prefix == "" {
		return "{}:born"
	}
	return "{" + prefix + ":}:born"
}

// quarantineTime is how long a node that may have lost grants has no vote: the clocks of two
// machines may drift.
func (r *Backend) quarantineTime() time.Duration { return r.opt.restartDelay + r.opt.restartDelay/100 }

// nodeTimeout is how long one node may take for a request with that TTL.
func (r *Backend) nodeTimeout(ttl time.Duration) time.Duration {
	return min(r.opt.nodeTimeout, ttl/4)
}

// quorumTimeout is how long to wait for the answers of a quorum.
func (r *Backend) quorumTimeout(ttl time.Duration) time.Duration {
	return max(r.nodeTimeout(ttl), min(ttl/2, 4*r.opt.nodeTimeout))
}

// ticket returns a new place in the queue: the time of the nodes' clocks by estimate, in µs,
// so that it does not depend on the clock of the client.
func (r *Backend) ticket() int64 {
	now := r.clocks.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tickets = max(r.tickets+1, now)
	return r.tickets
}

// outcome is the outcome of a request to all nodes. yes and no do not count nodes that have
// not answered.
type outcome struct {
	yes, no int
	replies []protocol.Reply // by node; status 0 and no rest if there is none
	errs    []error          // by node, nil if it answered
}

func (o outcome) unknown() int { return len(o.errs) - o.yes - o.no }

// all calls f for every node in parallel. It returns when enough returns true, when all
// nodes have answered, after nodeTimeout if a quorum has answered, after quorumTimeout, or
// when ctx ends, with its error. Calls of f that have not returned continue.
func (r *Backend) all(ctx context.Context, ttl time.Duration, enough func(outcome) bool, f func(i int, n *node) (protocol.Reply, error)) (outcome, error) {
	type answer struct {
		i   int
		r   protocol.Reply
		err error
	}
	ch := make(chan answer, len(r.nodes))
	o := outcome{replies: make([]protocol.Reply, len(r.nodes)), errs: make([]error, len(r.nodes))}
	open := 0
	for i, n := range r.nodes {
		o.errs[i] = errOverdue
		if n.send(func() {
			re, err := f(i, n)
			ch <- answer{i, re, err}
		}) {
			open++
		} else {
			o.errs[i] = backend.ErrClosed
		}
	}
	timeout, quorumTimeout := r.nodeTimeout(ttl), r.quorumTimeout(ttl)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for open > 0 && !enough(o) {
		select {
		case a := <-ch:
			open--
			if o.errs[a.i] = a.err; a.err != nil {
				continue
			}
			if o.replies[a.i] = a.r; a.r.Status == protocol.Yes {
				o.yes++
			} else {
				o.no++
			}
		case <-timer.C:
			if o.yes+o.no < r.quorum && timeout < quorumTimeout {
				timer.Reset(quorumTimeout - timeout)
				timeout = quorumTimeout
				continue
			}
			for i, n := range r.nodes {
				if o.errs[i] == errOverdue { //nolint:errorlint // the very value: no answer yet
					n.overdue()
				}
			}
			return o, nil
		case <-ctx.Done():
			return o, ctx.Err()
		case <-r.life.Done():
			return o, backend.ErrClosed
		}
	}
	return o, nil
}

// noTTL is the TTL of a request that takes no lock.
const noTTL = time.Minute

// decided waits until a quorum has agreed or cannot agree any more.
func (r *Backend) decided(o outcome) bool {
	return o.yes >= r.quorum || o.yes+o.unknown() < r.quorum
}

// allNodes waits for all nodes.
func allNodes(outcome) bool { return false }

// failed returns the error of a request to which too few nodes gave that answer, with the
// error of each of the others.
func (r *Backend) failed(what string, got int, errs []error) error {
	e := &nodesError{text: fmt.Sprintf("%d of %d nodes %s, want %d", got, len(r.nodes), what, r.quorum)}
	for i, err := range errs {
		if err != nil {
			e.errs = append(e.errs, nodeError{r.nodes[i].name, err})
		}
	}
	return e
}

// nodeError is the error of one node. Its text has the address once.
type nodeError struct {
	name string
	err  error
}

func (e nodeError) Error() string {
	text := strings.TrimPrefix(e.err.Error(), "redis: ")
	return "node " + e.name + ": " + strings.Replace(text, "dial tcp "+e.name+": ", "", 1)
}

func (e nodeError) Unwrap() error { return e.err }

// nodesError has an error for each node that failed.
type nodesError struct {
	text string
	errs []error
}

func (e *nodesError) Error() string {
	s := make([]string, len(e.errs))
	for i, err := range e.errs {
		s[i] = err.Error()
	}
	return e.text + ": " + strings.Join(s, "; ")
}

// Is does not match errors that say something about the lock, because an unknown outcome at
// one node is not that of the request, nor those of a context, which is not the caller's.
func (e *nodesError) Is(target error) bool {
	switch target {
	case backend.ErrUncertain, backend.ErrLost, backend.ErrLocked, context.DeadlineExceeded, context.Canceled:
		return false
	}
	return slices.ContainsFunc(e.errs, func(err error) bool { return errors.Is(err, target) })
}

// ReportStatus implements backend.StatusReporter.
func (r *Backend) ReportStatus(report func(what string, err error)) {
	r.mu.Lock()
	r.report = report
	r.mu.Unlock()
	for _, n := range r.nodes { // outages that began before
		n.mu.Lock()
		n.reportStatus()
		n.mu.Unlock()
	}
}

// statusReporter returns the function that ReportStatus has set, nil before.
func (r *Backend) statusReporter() func(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report
}

// Capabilities implements backend.Backend.
func (r *Backend) Capabilities() backend.Capabilities {
	c := r.caps
	c.Caveats = slices.Clone(c.Caveats)
	return c
}

// Ping makes one round trip to each node. It fails if fewer than a majority answer.
func (r *Backend) Ping(ctx context.Context) error {
	o, err := r.all(ctx, noTTL, func(o outcome) bool { return o.yes >= r.quorum }, func(_ int, n *node) (protocol.Reply, error) {
		return protocol.Reply{Status: protocol.Yes}, n.srv.Ping(context.Background())
	})
	if err != nil {
		return backend.Uncertain(err)
	}
	if o.yes < r.quorum {
		return r.failed("answered", o.yes, o.errs)
	}
	return nil
}

// Close ends the subscriptions and waits for requests in flight until ctx ends. Clients that
// were given to New stay open.
func (r *Backend) Close(ctx context.Context) error {
	r.end()
	errs := make([]error, len(r.nodes))
	var all sync.WaitGroup
	for i, n := range r.nodes {
		all.Go(func() { errs[i] = n.srv.Close(ctx) })
	}
	all.Wait()
	return cmp.Or(errs...)
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
