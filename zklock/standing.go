package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// standing is what the queue says of a shared attempt.
type standing struct {
	front []contender // what is in front; if blocked, some of it was not read
	own   []contender // for permits: the attempt, and those behind it that may fit too
	// blocked: something exclusive is in front. fits: the attempt holds the key.
	blocked, fits bool
}

// readPermits remembers places whose slots are assigned: they do not change any more.
type readPermits struct {
	mu sync.Mutex
	m  map[string]contender // by node
}

func (r *readPermits) get(c child) (contender, bool) {
	if r == nil {
		return contender{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x, ok := r.m[c.node]
	return x, ok
}

// keep remembers those of cs that are assigned, and forgets what is not in the queue.
func (r *readPermits) keep(q []child, cs []contender) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]contender{}
	}
	if len(r.m) > 2*backend.MaxPermits {
		names := nodeNames(q)
		maps.DeleteFunc(r.m, func(n string, _ contender) bool { return !slices.Contains(names, n) })
	}
	for _, c := range cs {
		if c.slots != nil {
			r.m[c.node] = c
		}
	}
}

// readContenders reads places, and leaves out those that are gone.
func (s *session) readContenders(ctx context.Context, dir string, places []child) ([]contender, error) {
	nodes, err := s.readAll(ctx, dir, nodeNames(places), s.get)
	if err != nil {
		return nil, err
	}
	cs := make([]contender, 0, len(nodes))
	for i, n := range nodes {
		if n.stat != nil {
			cs = append(cs, contender{places[i], contentOf(places[i].kind, n.data), n.stat})
		}
	}
	return cs, nil
}

// judge finds out how the attempt stands at index i of the queue, or would stand there. The
// error is that of backend.CapacityError if the attempt may not be in the queue.
//
// A downgraded holder is the first of the queue, since it was the exclusive holder. So of the
// exclusive nodes only the first is read.
func (a *attempt) judge(ctx context.Context, q []child, i int, known *readPermits) (st standing, err error) {
	front, me := q[:i], a.req.Share
	st.blocked = i > 1 && slices.ContainsFunc(front[1:], func(c child) bool { return c.kind == exclusiveNode })
	var places []child
	shared := false // the first shared place has the capacity that all must have
	for j, c := range front {
		switch {
		case c.kind == exclusiveNode && j == 0:
			places = append(places, c)
		case c.kind == permitsNode && (!shared || !st.blocked && me.Capacity > 0):
			if _, ok := known.get(c); !ok {
				places = append(places, c)
			}
		}
		shared = shared || c.kind != exclusiveNode
	}
	if i < len(q) && !st.blocked && me.Capacity > 0 {
		places = append(places, q[i:i+1+mayFit(q, i, me, known)]...)
	}
	read, err := a.s.readContenders(ctx, a.dir, places)
	if err != nil {
		return st, err
	}
	known.keep(q, read)
	if i < len(q) {
		if n := slices.IndexFunc(read, func(c contender) bool { return c.seq == q[i].seq }); n >= 0 {
			st.own = read[n:]
		}
	}
	for _, c := range front {
		x := contender{child: c}
		if k, ok := known.get(c); ok {
			x = k
		} else if r := slices.IndexFunc(read, func(r contender) bool { return r.seq == c.seq }); r >= 0 {
			x = read[r]
		} else if slices.ContainsFunc(places, func(p child) bool { return p.seq == c.seq }) {
			continue // it is gone
		} else if c.kind == readerNode {
			x.share = backend.Reader
		}
		st.front = append(st.front, x)
	}
	if err := checkCapacity(me, st.front); err != nil {
		return st, err
	}
	all := append(slices.Clone(st.front), contender{content: content{share: me}})
	st.fits = !st.blocked && holders(all) == len(all)
	return st, nil
}

// mayFit returns how many of the places behind index i of the queue may hold permits if that one
// does, by what is known of those in front.
func mayFit(q []child, i int, me backend.Share, known *readPermits) (n int) {
	free := me.Capacity - me.Weight
	for _, c := range q[:i] {
		x, _ := known.get(c)
		free -= max(1, x.share.Weight)
	}
	for n < min(free, maxAssigned) && i+1+n < len(q) && q[i+1+n].kind == permitsNode {
		n++
	}
	return n
}

// checkCapacity returns an error if a share must not wait behind these places: the first shared
// one, or one that holds permits, has another capacity. One in between that has another
// capacity than the first removes itself.
func checkCapacity(me backend.Share, front []contender) error {
	first := true
	for _, c := range front {
		if c.share.Exclusive() {
			continue
		}
		if c.share.Capacity != me.Capacity && (first || c.slots != nil) {
			return backend.CapacityError(me, c.share)
		}
		first = false
	}
	return nil
}

// errQueueChanged is the error of a change that depends on a queue that has changed.
var errQueueChanged = errors.New("zookeeper: the queue has changed")

// maxAssigned is the number of nodes that one request assigns slots to.
const maxAssigned = 64

// assign makes sure that the attempt, which fits, has slots. Slots are assigned in the order of
// the queue: one request writes them into the nodes of all that hold permits without slots, in
// front of the attempt, the attempt itself, and behind it. Each write has the condition that the
// node was not written since it was read, so of two such requests that overlap one fails, and reads what the
// other has assigned. So slots are distinct, and nothing is assigned behind a holder without
// slots. The writes also wake those behind the attempt.
func (a *attempt) assign(ctx context.Context, q []child, st standing, known *readPermits) error {
	switch {
	case len(st.own) == 0:
		return a.nodeDeleted()
	case st.own[0].slots != nil:
		a.slots = st.own[0].slots
		return nil
	}
	all := slices.Concat(st.front, st.own)
	if all = all[:holders(all)]; len(all) <= len(st.front) {
		return fmt.Errorf("zookeeper: node %.200q: its data were changed", a.path)
	}
	assigned := assignSlots(all)
	assigned = assigned[:min(len(assigned), maxAssigned)]
	ops := make([]any, len(assigned))
	for n, at := range assigned {
		c := all[at]
		ops[n] = &zk.SetDataRequest{Path: a.dir + "/" + c.node, Data: c.data(c.kind), Version: c.stat.Version}
	}
	_, _, err := call(ctx, a.s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return errQueueChanged
	}
	if err != nil {
		return explain(err, a.dir)
	}
	written := all[:assigned[len(assigned)-1]+1]
	known.keep(q, written)
	if len(written) <= len(st.front) {
		return errQueueChanged // there were too many in front
	}
	a.slots = written[len(st.front)].slots
	return nil
}
