package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/redisurl"
	"github.com/interlock-go/lock/redislock/internal/server"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

func init() { backend.Register("redlock", Open) }

// Open opens a backend from a redlock URL; see the package documentation.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	p, o := u.Params, defaults()
	o.nodeTimeout = p.Duration("node_timeout", o.nodeTimeout)
	o.restartDelay = p.Duration("restart_delay", o.restartDelay)
	o.durable = p.Bool("durable", false)
	o.set = p.String("set", "")
	s, err := redisurl.Parse(u)
	if err != nil {
		return nil, err
	}
	for _, opt := range []Option{WithNodeTimeout(o.nodeTimeout), WithRestartDelay(o.restartDelay)} {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	o.prefix, o.allowEviction, o.retention = s.Prefix, s.AllowEviction, s.Retention
	clients := s.Nodes()
	limited, cancel := context.WithTimeout(ctx, s.OpenTimeout())
	defer cancel()
	r, err := open(limited, clients, o)
	if err == nil {
		for _, n := range r.nodes {
			n.srv.Own = true
		}
		return r, nil
	}
	for _, c := range clients {
		_ = c.Close() // err is returned
	}
	if end := ctx.Err(); end != nil {
		err = fmt.Errorf("%w: %w", end, err)
	}
	return nil, err
}

// probeResult is the answer of a node at opening.
type probeResult struct {
	i      int
	found  server.Findings
	marked bool
	us     int64
	run    string
	err    error
}

// probeNodes checks all nodes, sets the markers of a new set of nodes, and subscribes. It
// succeeds if a majority answers.
func (r *Backend) probeNodes(ctx context.Context) (server.Findings, error) {
	for _, n := range r.nodes {
		n.srv.Go(n.keepSubscribed)
	}
	var all server.Findings
	errs := make([]error, len(r.nodes))
	var partly time.Time // since when some nodes have a marker
	for {
		seen, err := r.probe(ctx)
		if err != nil {
			return all, err
		}
		runs := map[string]string{}
		var answered, marked int
		for _, g := range seen {
			errs[g.i] = g.err
			if errors.Is(g.err, backend.ErrInvalid) {
				return all, nodeError{r.nodes[g.i].name, g.err}
			}
			if g.err != nil {
				continue
			}
			answered++
			if g.marked {
				marked++
			}
			if other, ok := runs[g.run]; ok && g.run != "" {
				return all, fmt.Errorf("%w nodes of a Redlock: %s and %s are the same server", backend.ErrInvalid, other, r.nodes[g.i].name)
			}
			runs[g.run] = r.nodes[g.i].name
			all.Merge(g.found)
		}
		switch {
		case answered < r.quorum:
			return all, r.failed("answered", answered, errs)
		case answered == len(r.nodes) && marked == 0:
			if err := r.mark(ctx, seen); err != nil {
				return all, err
			}
			continue // check the result
		case answered == len(r.nodes) && marked < len(r.nodes):
			if partly.IsZero() {
				partly = time.Now()
			}
			if time.Since(partly) < r.opt.nodeTimeout {
				server.Sleep(ctx, 10*time.Millisecond) // another process may be marking a new set
				continue
			}
		}
		if answered < len(r.nodes) {
			all.Add("Not every node answered at opening; the versions and eviction policies of those that did not are unknown.")
		}
		return all, r.awaitSubscriptions(ctx)
	}
}

// probe returns when all nodes have answered, or some time after a quorum with markers has.
// Without such a quorum the set may be new, which only the answers of all nodes show.
func (r *Backend) probe(ctx context.Context) ([]probeResult, error) {
	ch := make(chan probeResult, len(r.nodes))
	for i, n := range r.nodes {
		if !n.send(func() { ch <- n.probe(ctx, i) }) {
			return nil, backend.ErrClosed
		}
	}
	seen := make([]probeResult, len(r.nodes))
	for i := range seen {
		seen[i] = probeResult{i: i, err: errOverdue}
	}
	var grace <-chan time.Time
	for open, voting := len(r.nodes), 0; open > 0; open-- {
		if voting >= r.quorum && grace == nil {
			t := time.NewTimer(2 * r.opt.nodeTimeout)
			defer t.Stop()
			grace = t.C
		}
		select {
		case g := <-ch:
			seen[g.i] = g
			if g.err == nil && g.marked {
				voting++
			}
		case <-grace:
			return seen, nil
		case <-ctx.Done():
			return seen, nil // the missing ones have errors
		}
	}
	return seen, nil
}

func (n *node) probe(ctx context.Context, i int) probeResult {
	g := probeResult{i: i}
	begun := time.Now()
	if g.found, g.err = n.srv.Probe(ctx, wire.Scripts(), n.r.opt.allowEviction); g.err != nil {
		n.answered(protocol.Reply{}, g.err, begun, false)
		return g
	}
	r, err := n.call(wire.Found, n.r.names(protocol.Keys{}, ""), n.args(0, "", "0", "0")...)
	g.marked, g.us, g.run, g.err = r.Status == protocol.Yes, r.US, r.Str(0), err
	if g.marked && r.Str(1) != n.r.opt.set {
		g.err = errOtherSet
	}
	// Tickets depend on the estimate of the clock, which the fastest sample determines.
	// There are enough samples when clockSamples in a row were not much faster.
	best := time.Duration(math.MaxInt64)
	for all, idle := 0, 0; all < mostClockSamples && idle < clockSamples && g.err == nil; all++ {
		sent := time.Now()
		_, g.err = n.call(wire.Found, n.r.names(protocol.Keys{}, ""), n.args(0, "", "0", "0")...)
		if rtt := time.Since(sent); rtt < best-best/5 {
			best, idle = rtt, 0
		} else {
			idle++
		}
	}
	return g
}

const clockSamples, mostClockSamples = 4, 20

// mark sets the markers of a new set: every node has answered and none has a marker. A node
// refuses the marker if the answers are older than fresh.
func (r *Backend) mark(ctx context.Context, seen []probeResult) error {
	const fresh = 2 * time.Second
	_, err := r.all(ctx, noTTL, allNodes, func(i int, n *node) (protocol.Reply, error) {
		return n.call(wire.Found, r.names(protocol.Keys{}, ""), n.args(0, "", seen[i].us+fresh.Microseconds(), "0")...)
	})
	return err
}

// awaitSubscriptions returns when this process is subscribed at a quorum, so that the first
// wait needs no further round trip.
func (r *Backend) awaitSubscriptions(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		live := 0
		for _, n := range r.nodes {
			if n.subscribed() {
				live++
			}
		}
		if live >= r.quorum {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes have confirmed the subscription, want %d", live, len(r.nodes), r.quorum)
		}
	}
}

func (r *Backend) capabilities(found server.Findings) backend.Capabilities {
	n := len(r.nodes)
	c := backend.Capabilities{
		Name:       "redlock",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossTTL,
		Order:      backend.FIFO,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingRestart,
		PushesLoss: true,
		MinTTL:     100 * time.Millisecond, // a third of it must outlast a round trip and a pause of the process
		MaxTTL:     r.opt.restartDelay,
		Lateness:   protocol.TombstoneTTL,
		Caveats: []string{
			fmt.Sprintf("%d of %d nodes must agree. At most one client holds a lock while no more than %d nodes lose their data, stop, are cut off or have their clocks stepped within a TTL. After a greater failure two clients may hold it, and only a check of the token at the resource protects.", r.quorum, n, n-r.quorum),
			"Numbers of commands are those at each node: every request goes to all nodes.",
			fmt.Sprintf("A node that restarted without its data has no vote for restart_delay, %v, which is also the longest TTL. Clients count it, and only while one is open: if all are short-lived, keep one open that asks again. All clients that share locks must use the same value. If all nodes lose their data at the same time, they count as a new set.", r.opt.restartDelay),
			"Tokens rise as long as a majority keeps its data, and otherwise as long as the nodes' clocks are not behind the time of the last grant.",
			"Waiters are served in the order of arrival by the nodes' clocks, as each process estimates them. Two waiters of different processes may be served in the other order if they arrive within the sum of the fastest round trips of the two processes, or within the difference of the nodes' clocks while one of the processes has answers from fewer nodes.",
			"The clocks of the nodes must run at the same rate within 0.05 %, and agree within 1 s: a node whose clock differs has no vote, and none for restart_delay after a client has seen that. A step forward of less than 1 s, of a majority at the same time, or that no client notices before it is undone, ends leases early.",
			"A node refuses clients of another set of nodes: give all clients the same hosts, or the same set parameter.",
			"Simultaneous TryLock of several clients on a free key may refuse all of them.",
			"A program without this library that takes the same key at a majority excludes and is excluded. Its release wakes no waiter; waiters notice it within a second.",
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if r.opt.durable {
		c.Caveats = append(c.Caveats, "The nodes are declared durable: a node that restarts without data that it had acknowledged (appendfsync is not always, a snapshot is restored) grants a held lock again.")
	}
	found.Declare(&c)
	return c
}
