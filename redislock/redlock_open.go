package redislock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

func init() { backend.Register("redlock", OpenRedlock) }

// OpenRedlock opens a backend from a redlock URL; see the package's documentation for
// its form.
func OpenRedlock(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	p := u.Params
	q := redlockDefaults
	q.nodeTimeout = p.Duration("node_timeout", q.nodeTimeout)
	q.restartDelay = p.Duration("restart_delay", q.restartDelay)
	q.durable = p.Bool("durable", false)
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	if s.replicas > 0 {
		return nil, backend.Invalid("URL parameter wait_replicas", s.replicas, "0 with redlock, whose nodes are what agrees")
	}
	for _, opt := range []Option{WithNodeTimeout(q.nodeTimeout), WithRestartDelay(q.restartDelay)} {
		if err := opt(&s.options); err != nil {
			return nil, err
		}
	}
	s.redlock = q
	addrs := s.addrs
	clients := make([]*redis.Client, len(addrs))
	for i, a := range addrs {
		s.addrs = []string{a}
		clients[i] = s.client().(*redis.Client)
	}
	ctx, cancel := context.WithTimeout(ctx, s.dial+s.read+s.openTimeout)
	defer cancel()
	r, err := openRedlock(ctx, clients, s.options, true)
	if err != nil {
		for _, c := range clients {
			_ = c.Close() // err is the one that matters
		}
		return nil, fmt.Errorf("%s at %s: %w", u.Scheme, strings.Join(addrs, ","), err)
	}
	return r, nil
}

// greeting is how a node answered at opening.
type greeting struct {
	i      int
	found  findings
	marked bool
	us     int64
	run    string
	err    error
}

// found looks at all nodes, gives those of a new set their marker, and begins to
// listen. It succeeds if a majority answers.
func (r *Redlock) found(ctx context.Context) (findings, error) {
	for _, n := range r.nodes {
		if r.enter() {
			go func() { defer r.wg.Done(); n.listen() }()
		}
	}
	var all findings
	errs := make([]error, len(r.nodes))
	var partly time.Time // since when some have a marker
	for {
		seen, err := r.greet(ctx)
		if err != nil {
			return all, err
		}
		runs := map[string]string{}
		var answered, marked int
		for _, g := range seen {
			errs[g.i] = g.err
			if errors.Is(g.err, backend.ErrInvalid) {
				return all, r.failed("accepted", 0, errs) // it is reached, and no node for us
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
			for _, c := range g.found.caveats {
				all.add(c)
			}
		}
		switch {
		case answered < r.quorum:
			return all, r.failed("opened", answered, errs)
		case answered == len(r.nodes) && marked == 0:
			if err := r.mark(ctx, seen); err != nil {
				return all, err
			}
			continue // look at what came of it
		case answered == len(r.nodes) && marked < len(r.nodes):
			if partly.IsZero() {
				partly = time.Now()
			}
			if time.Since(partly) < r.opt.redlock.nodeTimeout {
				sleep(ctx, 10*time.Millisecond) // another process may be marking a new set
				continue
			}
		}
		if answered < len(r.nodes) {
			all.add("Not every node answered at opening; the versions and eviction policies of those that did not are unknown.")
		}
		return all, r.heard(ctx)
	}
}

// greet returns when all nodes have answered, or some time after a majority that
// votes has. While there is none it may be a new set, and only all of them tell.
func (r *Redlock) greet(ctx context.Context) ([]greeting, error) {
	ch := make(chan greeting, len(r.nodes))
	for i, n := range r.nodes {
		if !n.send(func() { ch <- n.greet(ctx, i) }) {
			return nil, backend.ErrClosed
		}
	}
	seen := make([]greeting, len(r.nodes))
	for i := range seen {
		seen[i] = greeting{i: i, err: errOverdue}
	}
	var grace <-chan time.Time
	for open, voting := len(r.nodes), 0; open > 0; open-- {
		if voting >= r.quorum && grace == nil {
			t := time.NewTimer(2 * r.opt.redlock.nodeTimeout)
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
			return seen, nil // with errors of those that are missing
		}
	}
	return seen, nil
}

func (n *voter) greet(ctx context.Context, i int) greeting {
	g := greeting{i: i}
	begun := time.Now()
	if g.found, g.err = n.b.probe(ctx); g.err != nil {
		n.answered(reply{}, g.err, begun, false)
		return g
	}
	r, err := n.call(quorumFound, n.r.names(keys{}, ""), n.r.args(0, "", "0")...)
	g.marked, g.us, g.run, g.err = r.status == yes, r.us, r.str(0), err
	// Places in the queue depend on the clock, of which the quickest sample counts: there
	// are enough when some in a row were not much quicker.
	best := time.Duration(math.MaxInt64)
	for all, idle := 0, 0; all < mostClockSamples && idle < clockSamples && g.err == nil; all++ {
		sent := time.Now()
		_, g.err = n.call(quorumFound, n.r.names(keys{}, ""), n.r.args(0, "", "0")...)
		if rtt := time.Since(sent); rtt < best-best/5 {
			best, idle = rtt, 0
		} else {
			idle++
		}
	}
	return g
}

const clockSamples, mostClockSamples = 4, 20

// mark gives the nodes of a new set their vote. It is a new set if every node
// answered and none has a marker. What was seen must not be old when it is acted on.
func (r *Redlock) mark(ctx context.Context, seen []greeting) error {
	const fresh = 2 * time.Second
	_, err := r.all(ctx, noTTL, everyone, func(i int, n *voter) (reply, error) {
		return n.call(quorumFound, r.names(keys{}, ""), r.args(0, "", seen[i].us+fresh.Microseconds())...)
	})
	return err
}

// heard returns when this process listens at a majority, so that the first wait
// costs nothing more.
func (r *Redlock) heard(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		live := 0
		for _, n := range r.nodes {
			if n.listens() {
				live++
			}
		}
		if live >= r.quorum {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("redlock: subscribed at %d of %d nodes: %w", live, len(r.nodes), ctx.Err())
		}
	}
}

func (r *Redlock) capabilities(found findings) backend.Capabilities {
	c := r.nodes[0].b.capabilities(findings{})
	c.Name = "redlock"
	c.MaxTTL = r.opt.redlock.restartDelay
	c.HandOffCommands, c.IdleWaiterCommands = 3, 1.5
	n := len(r.nodes)
	c.Caveats = []string{
		fmt.Sprintf("%d of %d nodes must agree. At most one holds a lock while no more than %d nodes lose their memory, stop or are cut off within a TTL; a greater failure may let two in, and only a check of the token at the resource tells them apart.", r.quorum, n, n-r.quorum),
		"Numbers of commands are those at each node: every request goes to all of them.",
		fmt.Sprintf("A node that came back without its memory has no vote for restart_delay, %v, which is also the longest TTL. All who share locks must use the same. If all nodes lose their memory at once they are taken for a new set.", r.opt.redlock.restartDelay),
		"Tokens rise as long as a majority keeps its memory, and otherwise as long as the nodes' clocks are not behind the moment of the last grant.",
		"Waiters are served in the order of their arrival by the nodes' clocks as each process knows them: two from different processes may be served the other way round if they arrive closer together than the quickest round trips that these have had with the nodes, added up, or than the nodes' clocks differ while one of the processes knows fewer of them.",
		"The clocks of the nodes must run at the same rate within 0.05 % and must not be stepped: a step forward ends leases at that node early by as much.",
		"TryLock of several clients at once on a free key may refuse all of them.",
		"A client of another kind excludes and is excluded if it takes the same key at a majority; it hands it to nobody, and its end is noticed within a second.",
	}
	if r.opt.redlock.durable {
		c.Caveats = append(c.Caveats, "Nodes are said to be durable: one that restarts without what it had acknowledged (appendfsync is not always, a snapshot is restored) votes a lock away.")
	}
	c.Caveats = append(c.Caveats, found.caveats...)
	return c
}
