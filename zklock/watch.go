package zklock

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
)

// watched is a watch on a node that somebody holds or waits with.
type watched struct {
	data       []byte
	stat       *zk.Stat // nil: there is no such node, and no watch
	gone       <-chan zk.Event
	connection int // on which the watch was set
	err        error
}

// watch sets a watch on a node that is there: one that is not is never created.
func (s *session) watch(ctx context.Context, path string) watched {
	connection := s.connection()
	w, _, err := call(ctx, s, false, func(c *zk.Conn) (watched, error) {
		data, stat, gone, err := c.GetW(path)
		if errors.Is(err, zk.ErrNoNode) {
			return watched{}, nil
		}
		return watched{data: data, stat: stat, gone: gone}, err
	})
	w.connection, w.err = connection, explain(err, path)
	return w
}

// intact tells whether nothing was told by the watch.
func (w *watched) intact() bool {
	if w.stat == nil {
		return false
	}
	select {
	case <-w.gone:
		return false
	default:
		return true
	}
}

// watch begins to watch a child of the lock's node, unless that is done already. The
// result waits for it.
func (w *wait) watch(ctx context.Context, node string) func() error {
	if _, done := w.seen[node]; done {
		return func() error { return nil }
	}
	s, got := w.a.s, make(chan watched, 1)
	go func() { got <- s.watch(ctx, w.a.dir+"/"+node) }()
	return func() error {
		x := <-got
		if x.err == nil {
			w.seen[node] = x
		}
		return x.err
	}
}

// watchAll watches some nodes, all at once, and no others; "" is none.
func (w *wait) watchAll(ctx context.Context, nodes ...string) error {
	nodes = slices.DeleteFunc(nodes, func(n string) bool { return n == "" })
	var begun []func() error
	for _, n := range nodes {
		begun = append(begun, w.watch(ctx, n))
	}
	var errs []error
	for _, done := range begun {
		errs = append(errs, done())
	}
	for n := range w.seen {
		if !slices.Contains(nodes, n) {
			delete(w.seen, n)
		}
	}
	return errors.Join(errs...)
}

// own is the watch of the own node, if it proves that the node is there after all
// events that have arrived: those of one connection arrive in the order in which
// things happened. Over a lost connection watches speak in any order.
func (w *wait) own() *watched {
	x, ok := w.seen[base(w.a.path)]
	if !ok || x.connection == 0 || x.connection != w.a.s.connection() || !x.intact() || uint64(x.stat.Czxid) != w.a.token {
		return nil
	}
	return &x
}
