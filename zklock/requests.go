package zklock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// call sends a request and returns when it is answered, ctx ends or the session ends.
// The client library has no contexts and blocks while there is no connection, so a
// request may be left behind in it: pending is then closed when that has ended.
func call[T any](ctx context.Context, s *session, f func(c *zk.Conn) (T, error)) (v T, pending <-chan struct{}, err error) {
	if ctx.Err() != nil {
		return v, nil, notSent{endOf(ctx)}
	}
	if err := s.startCall(); err != nil {
		return v, nil, err
	}
	type result struct {
		v   T
		err error
	}
	got := make(chan result, 1)
	done := make(chan struct{})
	go func() {
		defer s.calls.Done()
		defer close(done)
		v, err := f(s.conn)
		got <- result{v, err}
	}()
	select {
	case r := <-got:
		if e := s.endErr(); e != nil && !answered(r.err) {
			r.err = e
		}
		return r.v, nil, r.err
	case <-ctx.Done():
		return v, done, endOf(ctx)
	case <-s.done:
		return v, done, s.endErr()
	}
}

// sync makes the server catch up with the leader.
func (s *session) sync(ctx context.Context) error {
	_, _, err := call(ctx, s, func(c *zk.Conn) (string, error) { return c.Sync(s.b.base) })
	return explain(err, s.b.base)
}

func (s *session) exists(ctx context.Context, path string) (bool, error) {
	found, _, err := call(ctx, s, func(c *zk.Conn) (bool, error) {
		ok, _, err := c.Exists(path)
		return ok, err
	})
	return found, explain(err, path)
}

// listing is the children of a node as they were read.
type listing struct {
	names []string
	stat  *zk.Stat        // of the node; nil: it does not exist
	event <-chan zk.Event // nil if the children are not watched
}

// list reads the children of a node, and watches them if it exists and watch is set.
func (s *session) list(ctx context.Context, path string, watch bool) (listing, error) {
	l, _, err := call(ctx, s, func(c *zk.Conn) (l listing, err error) {
		if watch {
			l.names, l.stat, l.event, err = c.ChildrenW(path)
		} else {
			l.names, l.stat, err = c.Children(path)
		}
		return l, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return listing{}, nil
	}
	return l, explain(err, path)
}

// children returns the names of the children of a node, none if it does not exist.
func (s *session) children(ctx context.Context, path string) ([]string, error) {
	l, err := s.list(ctx, path, false)
	return l.names, err
}

// node is a node as it was read.
type node struct {
	data  []byte
	stat  *zk.Stat        // nil: the node does not exist
	event <-chan zk.Event // nil if it is not watched
	conn  int             // number of the connection on which it was read
}

func (s *session) get(ctx context.Context, path string) (node, error) {
	return s.read(ctx, path, func(c *zk.Conn) (n node, err error) {
		n.data, n.stat, err = c.Get(path)
		return n, err
	})
}

// watch reads a node and watches it, if it exists.
func (s *session) watch(ctx context.Context, path string) (node, error) {
	return s.read(ctx, path, func(c *zk.Conn) (n node, err error) {
		n.data, n.stat, n.event, err = c.GetW(path)
		return n, err
	})
}

func (s *session) read(ctx context.Context, path string, f func(*zk.Conn) (node, error)) (node, error) {
	conn := s.connNumber()
	n, _, err := call(ctx, s, f)
	if errors.Is(err, zk.ErrNoNode) {
		return node{}, nil
	}
	n.conn = conn
	return n, explain(err, path)
}

// readAll reads children of a node with get or watch, up to 16 at a time.
func (s *session) readAll(ctx context.Context, dir string, names []string, read func(context.Context, string) (node, error)) ([]node, error) {
	nodes, errs := make([]node, len(names)), make([]error, len(names))
	inParallel(len(names), func(i int) { nodes[i], errs[i] = read(ctx, dir+"/"+names[i]) })
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return nodes, nil
}

// inParallel calls f for 0 to n-1, up to 16 at a time.
func inParallel(n int, f func(i int)) {
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// silent reports whether the node exists and its watch has not reported an event.
func (n *node) silent() bool { return n.stat != nil && !isReady(n.event) }

// createNode creates the node of a lock, if it does not exist, and those above it. The
// server deletes it some time after its last child, if it knows containers (3.5.3).
func (s *session) createNode(ctx context.Context, path string) error {
	_, _, err := call(ctx, s, func(c *zk.Conn) (string, error) {
		return c.CreateContainer(path, nil, zk.FlagContainer, s.b.opt.acl)
	})
	if err != nil && unknownCode(err) { // no containers
		err = s.createPersistent(ctx, path)
	}
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return s.createBase(ctx) // the caller tries again
	}
	return explain(err, path)
}

func (s *session) createPersistent(ctx context.Context, path string) error {
	_, _, err := call(ctx, s, func(c *zk.Conn) (string, error) {
		return c.Create(path, nil, zk.FlagPersistent, s.b.opt.acl)
	})
	return err
}

// deleteIfEmpty deletes the node of a lock. The server refuses that while it has children, so
// no holder or waiter loses its node. It is no error if the node has children, does not exist,
// or may not be deleted by this user.
func (s *session) deleteIfEmpty(ctx context.Context, path string) error {
	err := s.deleteNode(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) || permissionDenied(err) {
		return nil
	}
	return err
}

// deleteNode returns an error that says whether the node may be deleted later.
func (s *session) deleteNode(ctx context.Context, path string) error {
	_, _, err := call(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(path, -1)
	})
	return explainChange(err, path)
}

// deleteIfExists is deleteNode, without an error if the node does not exist.
func (s *session) deleteIfExists(ctx context.Context, path string) error {
	err := s.deleteNode(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
