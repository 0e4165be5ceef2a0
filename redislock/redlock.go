package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// Redlock is a driver over several independent masters, of which a majority has to
// agree. Make one with NewRedlock or lock.Open.
type Redlock struct {
	nodes   []*voter
	quorum  int
	opt     options
	address string // of this process, the same at all nodes
	caps    backend.Capabilities

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // goroutines

	mu      sync.Mutex
	closed  bool
	tickets int64               // the last
	ballots map[string]*ballot  // by owner: those that wait, that hold, and that are to be abandoned
	say     func(string, error) // see Notify
}

var (
	_ backend.Backend   = (*Redlock)(nil)
	_ backend.Waiter    = (*Redlock)(nil)
	_ backend.Inspector = (*Redlock)(nil)
	_ backend.Lister    = (*Redlock)(nil)
	_ backend.Breaker   = (*Redlock)(nil)
	_ backend.Pinger    = (*Redlock)(nil)
	_ backend.Notifier  = (*Redlock)(nil)
)

const minNodes = 3

// NewRedlock makes a backend of the caller's clients, each of an independent master:
// three or more, best an odd number. It talks to them for a bounded time, and
// succeeds if a majority answers. The clients are never closed. Their read timeouts
// bound how long a request to a node that hangs may occupy a connection.
func NewRedlock(clients []redis.UniversalClient, opts ...Option) (*Redlock, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	if o.replicas > 0 {
		return nil, fmt.Errorf("%w options: WithWaitReplicas is not for NewRedlock, whose nodes are what agrees", backend.ErrInvalid)
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
	return openRedlock(ctx, masters, o, false)
}

// openRedlock takes the clients over if it succeeds and own is set.
func openRedlock(ctx context.Context, clients []*redis.Client, o options, own bool) (*Redlock, error) {
	if len(clients) < minNodes {
		return nil, backend.Invalid("number of nodes of a Redlock", len(clients), fmt.Sprintf("%d or more, best an odd number", minNodes))
	}
	r := &Redlock{
		quorum: len(clients)/2 + 1, opt: o, address: newAddress("p"),
		ballots: map[string]*ballot{},
	}
	r.life, r.end = context.WithCancel(context.Background())
	for _, c := range clients {
		r.nodes = append(r.nodes, r.newNode(c, own))
	}
	found, err := r.found(ctx)
	if err != nil {
		for _, n := range r.nodes {
			n.b.own = false // the caller's still
		}
		_ = r.Close(ctx) // err is the one that matters
		return nil, certain(err)
	}
	r.caps = r.capabilities(found)
	return r, nil
}

// keys of the scripts: those of the lock, and the node's marker.
func (r *Redlock) names(k keys, owner string) []string {
	return []string{k.lock, k.queue, k.fence, k.tombstone(owner), markerKey(r.opt.prefix)}
}

// markerKey is no lock's: no lock has the empty name.
func markerKey(prefix string) string {
	if prefix == "" {
		return "{}:born"
	}
	return "{" + prefix + ":}:born"
}

// args are those of a quorum script: its own between what is common to all.
func (r *Redlock) args(token uint64, own ...any) []any {
	durable := "0"
	if r.opt.redlock.durable {
		durable = "1"
	}
	// the clocks of two nodes may run apart
	delay := r.opt.redlock.restartDelay + r.opt.redlock.restartDelay/100
	a := append([]any{r.nodes[0].b.channelPrefix()}, own...)
	return append(a, millis(delay), durable, token)
}

// nodeTimeout is how long one node may take for a request with that TTL.
func (r *Redlock) nodeTimeout(ttl time.Duration) time.Duration {
	return min(r.opt.redlock.nodeTimeout, ttl/4)
}

// patience is how long to wait for a majority to answer.
func (r *Redlock) patience(ttl time.Duration) time.Duration {
	return max(r.nodeTimeout(ttl), min(ttl/2, 4*r.opt.redlock.nodeTimeout))
}

// ticket is the place in the queue: the nodes' clock by estimate, so that no client's
// own clock counts. Never the same twice.
func (r *Redlock) ticket() int64 {
	var clocks []bounds
	for _, n := range r.nodes {
		if b, known := n.clock(); known {
			clocks = append(clocks, b)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.tickets + 1
	if len(clocks) > 0 {
		next = max(next, (time.Since(epoch) + ahead(clocks)).Microseconds())
	}
	r.tickets = next
	return next
}

// outcome of a request to all nodes. A node that has not answered yet is in none of
// the counts.
type outcome struct {
	yes, no int
	replies []reply // by node; status 0 and no rest if there is none
	errs    []error // by node, nil if it answered
}

func (o outcome) unknown() int { return len(o.errs) - o.yes - o.no }

// all asks every node in parallel with f, which runs to its end whatever happens
// here. It returns when enough says so, when all have answered, when the time
// allowed to a node has passed and a majority has answered, when that takes too long,
// or with ctx, whose error it then returns.
func (r *Redlock) all(ctx context.Context, ttl time.Duration, enough func(outcome) bool, f func(i int, n *voter) (reply, error)) (outcome, error) {
	type answer struct {
		i   int
		r   reply
		err error
	}
	ch := make(chan answer, len(r.nodes))
	o := outcome{replies: make([]reply, len(r.nodes)), errs: make([]error, len(r.nodes))}
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
	timeout, patience := r.nodeTimeout(ttl), r.patience(ttl)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for open > 0 && !enough(o) {
		select {
		case a := <-ch:
			open--
			o.errs[a.i] = a.err
			switch {
			case a.err != nil:
			case a.r.status == yes:
				o.yes++
				o.replies[a.i] = a.r
			default:
				o.no++
				o.replies[a.i] = a.r
			}
		case <-timer.C:
			if o.yes+o.no < r.quorum && timeout < patience {
				timer.Reset(patience - timeout)
				timeout = patience
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

// noTTL is that of a request that takes nothing.
const noTTL = time.Minute

func everyone(outcome) bool { return false }

// failed is the error of a request that too few nodes answered, each with its reason.
func (r *Redlock) failed(what string, got int, errs []error) error {
	e := &nodesError{text: fmt.Sprintf("redlock: %s at %d of %d nodes, want %d", what, got, len(r.nodes), r.quorum)}
	for i, err := range errs {
		if err != nil {
			e.errs = append(e.errs, fmt.Errorf("node %s: %w", r.nodes[i].name, err))
		}
	}
	return e
}

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

// Is finds what stands for the whole: one node's doubt is not the driver's.
func (e *nodesError) Is(target error) bool {
	if target == backend.ErrUncertain || target == backend.ErrLost || target == backend.ErrLocked {
		return false
	}
	return slices.ContainsFunc(e.errs, func(err error) bool { return errors.Is(err, target) })
}

// Notify implements backend.Notifier.
func (r *Redlock) Notify(say func(what string, err error)) {
	r.mu.Lock()
	r.say = say
	r.mu.Unlock()
	for _, n := range r.nodes { // what began before
		n.mu.Lock()
		n.tell()
		n.mu.Unlock()
	}
}

// listener is whom outages are told, nil before Notify.
func (r *Redlock) listener() func(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.say
}

// enter registers a goroutine that Close waits for. It is false after Close.
func (r *Redlock) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Add(1)
	return true
}

// Capabilities says what the driver guarantees.
func (r *Redlock) Capabilities() backend.Capabilities {
	c := r.caps
	c.Caveats = slices.Clone(c.Caveats)
	return c
}

// Ping makes one round trip to each node. It fails if fewer than a majority answer.
func (r *Redlock) Ping(ctx context.Context) error {
	o, err := r.all(ctx, noTTL, func(o outcome) bool { return o.yes >= r.quorum }, func(_ int, n *voter) (reply, error) {
		return reply{status: yes}, n.b.Ping(context.Background())
	})
	if err != nil {
		return backend.Uncertain(err)
	}
	if o.yes < r.quorum {
		return r.failed("answered", o.yes, o.errs)
	}
	return nil
}

// Close ends the subscriptions and waits, until ctx ends, for what is in flight.
// Clients that were given to NewRedlock stay open.
func (r *Redlock) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	errs := make([]error, len(r.nodes))
	var all sync.WaitGroup
	for i, n := range r.nodes {
		all.Go(func() { errs[i] = n.b.Close(ctx) })
	}
	all.Wait()
	done := make(chan struct{})
	go func() { r.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
