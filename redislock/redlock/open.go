package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
	_ "github.com/interlock-go/lock/redislock" // sets quorum.NewNode
	"github.com/interlock-go/lock/redislock/internal/quorum"
	"github.com/interlock-go/lock/redislock/internal/redisurl"
	"github.com/interlock-go/lock/redislock/internal/server"
)

func init() { backend.Register("redlock", Open) }

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

// Open opens a backend from a redlock URL; see the package documentation.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	p, o := u.Params, defaults()
	o.nodeTimeout = p.Duration("node_timeout", o.nodeTimeout)
	o.restartDelay = p.Duration("restart_delay", o.restartDelay)
	o.Durable = p.Bool("durable", false)
	o.set = p.String("set", "")
	at, err := redisurl.Parse(u)
	if err != nil {
		return nil, err
	}
	for _, opt := range []Option{WithNodeTimeout(o.nodeTimeout), WithRestartDelay(o.restartDelay)} {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	o.Prefix, o.AllowEviction, o.Retention, o.Own = at.Prefix, at.AllowEviction, at.Retention, true
	limited, cancel := context.WithTimeout(ctx, at.OpenTimeout())
	defer cancel()
	r, err := open(limited, at.Nodes(), o)
	if err == nil {
		return r, nil
	}
	if end := ctx.Err(); end != nil {
		err = fmt.Errorf("%w: %w", end, err)
	}
	return nil, err
}

// open opens the nodes. If it fails it closes them, and clients of its own.
func open(ctx context.Context, clients []*redis.Client, o options) (*Backend, error) {
	if len(clients) < redisurl.MinNodes {
		return nil, backend.Invalid("number of nodes of a Redlock", len(clients), fmt.Sprintf("%d or more, preferably an odd number", redisurl.MinNodes))
	}
	s := &service{
		need: len(clients)/2 + 1, opt: o, life: call.NewLife(), attempts: map[string]*attempt{},
		keys: contentions{all: map[string]*contention{}},
	}
	r := &Backend{Backend: queue.New(s), svc: s}
	s.events = r.Backend
	var addrs []string
	for _, c := range clients {
		n := &node{s: s, name: c.Options().Addr, probes: make(chan struct{}, maxProbes), leftovers: leftovers{owners: map[string]bool{}}}
		n.Node = quorum.NewNode(c, o.Options, n)
		s.nodes, addrs = append(s.nodes, n), append(addrs, n.name)
	}
	slices.Sort(addrs)
	s.opt.set = setID(cmp.Or(o.set, strings.Join(addrs, ",")))
	found, err := s.probe(ctx)
	if err != nil {
		_ = r.Close(ctx) // err is the one that matters
		return nil, err
	}
	r.caps = s.capabilities(found)
	return r, nil
}

// probed is the answer of a node at opening.
type probed struct {
	found server.Findings
	life  quorum.Life
	sent  time.Time
}

// freshMark is how old the answers may be by which the markers of a new set are written.
const freshMark = 2 * time.Second

// probe checks all nodes, and sets the markers of a new set: all nodes have answered, and none has one. It succeeds if a
// majority answers. While there is no majority with markers the set may be new, and probe waits for every node.
func (s *service) probe(ctx context.Context) (found server.Findings, err error) {
	var partly time.Time // since when some nodes have a marker
	for before := []reply[probed](nil); ; call.Sleep(ctx, 10*time.Millisecond) {
		all, end := each(ctx, s, noTTL, func(ctx context.Context, i int) (probed, error) {
			p, err := s.nodes[i].probe(ctx)
			if err == nil && p.life.Marker == "" {
				err = errUnmarked
			}
			return p, err
		}, allNodes[probed](s))
		if end != nil && before != nil {
			all = before
		}
		before = all
		n, marked, runs := 0, answered(all), map[string]string{}
		for i, r := range all {
			name, run := s.nodes[i].name, r.value.life.Run
			m, ok := parseMarker(r.value.life.Marker)
			switch {
			case r.err != nil && r.err != errUnmarked: //nolint:errorlint // the very value
			case run != "" && runs[run] != "":
				r.err = fmt.Errorf("%w node of a Redlock: it is the same server as %s", backend.ErrInvalid, runs[run])
			case ok && m.set != s.opt.set:
				r.err = errOtherSet
			default:
				n++
				found.Merge(r.value.found)
			}
			if runs[run] = name; errors.Is(r.err, backend.ErrInvalid) {
				return found, nodeError{name, r.err}
			}
		}
		switch late := slices.ContainsFunc(all, reply[probed].overdue); {
		case n == len(all) && marked == 0:
			s.mark(ctx, all) // the next round checks the result
		case n == len(all) && marked < n && partly.IsZero(): // another process may be marking a new set
			partly = time.Now()
		case n == len(all) && (marked == n || time.Since(partly) > s.opt.nodeTimeout):
			return found, nil
		case late && marked < s.need && end == nil:
		case n < s.need:
			return found, failed(s, "answered", n, all)
		case n < len(all):
			found.Add("Not every node answered at opening; the versions and eviction policies of those that did not are unknown.")
			return found, nil
		}
	}
}

// probe checks the settings of a node, and reads its clock and its marker.
func (n *node) probe(ctx context.Context) (p probed, err error) {
	p.sent = time.Now()
	if p.found, err = n.Open(ctx); err == nil {
		p.sent = time.Now()
		p.life, err = n.Mark(ctx, quorum.Life{}, "")
		n.s.clock.set(offsetOf(p.life.Now, p.sent))
	}
	n.report(err, p.sent)
	return p, err
}

// mark sets the markers of a new set. Its nodes vote at once.
func (s *service) mark(ctx context.Context, all []reply[probed]) {
	_, _ = each(ctx, s, noTTL, func(ctx context.Context, i int) (l quorum.Life, err error) {
		if p := all[i].value; time.Since(p.sent) < freshMark {
			l, err = s.nodes[i].Mark(ctx, p.life, marker{p.life.Run, s.opt.set, 0, 1000 * s.quarantine()}.String())
		}
		return l, err
	}, allNodes[quorum.Life](s))
}
