package zklock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// ask sends a request and returns when it is answered, ctx ends or the session ends.
// The client library has no contexts and blocks while there is no connection, so a
// request may be left behind in it: pending is then closed when that has ended.
func ask[T any](ctx context.Context, ss *session, f func(c *zk.Conn) (T, error)) (v T, pending <-chan struct{}, err error) {
	if ctx.Err() != nil {
		return v, nil, notSent{endOf(ctx)}
	}
	if err := ss.startCall(); err != nil {
		return v, nil, err
	}
	type result struct {
		v   T
		err error
	}
	got := make(chan result, 1)
	done := make(chan struct{})
	go func() {
		defer ss.calls.Done()
		defer close(done)
		v, err := f(ss.conn)
		got <- result{v, err}
	}()
	select {
	case r := <-got:
		if e := ss.endErr(); e != nil && !answered(r.err) {
			r.err = e
		}
		return r.v, nil, r.err
	case <-ctx.Done():
		return v, done, endOf(ctx)
	case <-ss.done:
		return v, done, ss.endErr()
	}
}

// sync makes the server catch up with the leader.
func (ss *session) sync(ctx context.Context) error {
	_, _, err := ask(ctx, ss, func(c *zk.Conn) (string, error) { return c.Sync(ss.s.base) })
	return explain(err, ss.s.base)
}

// listing is the children of a node as they were read.
type listing struct {
	names []string
	stat  *zk.Stat        // of the node; nil: it does not exist
	event <-chan zk.Event // nil if the children are not watched
}

// list reads the children of a node.
func (ss *session) list(ctx context.Context, path string) (listing, error) {
	l, _, err := ask(ctx, ss, func(c *zk.Conn) (l listing, err error) {
		l.names, l.stat, err = c.Children(path)
		return l, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return listing{}, nil
	}
	return l, explain(err, path)
}

// watchChildren is list, and watches the children of the node, or its creation if it does not exist.
func (ss *session) watchChildren(ctx context.Context, path string) (listing, error) {
	l, _, err := ask(ctx, ss, func(c *zk.Conn) (l listing, err error) {
		for exists := true; exists; { // else it was deleted meanwhile
			l.names, l.stat, l.event, err = c.ChildrenW(path)
			if !errors.Is(err, zk.ErrNoNode) {
				return l, err
			}
			l = listing{}
			if exists, _, l.event, err = c.ExistsW(path); err != nil {
				return l, err
			}
		}
		return l, nil
	})
	return l, explain(err, path)
}

// node is a node as it was read.
type node struct {
	data  []byte
	stat  *zk.Stat        // nil: the node does not exist
	event <-chan zk.Event // nil if it is not watched
}

func (ss *session) get(ctx context.Context, path string) (node, error) {
	return ss.read(ctx, path, func(c *zk.Conn) (n node, err error) {
		n.data, n.stat, err = c.Get(path)
		return n, err
	})
}

// watch reads a node and watches it, if it exists.
func (ss *session) watch(ctx context.Context, path string) (node, error) {
	return ss.read(ctx, path, func(c *zk.Conn) (n node, err error) {
		n.data, n.stat, n.event, err = c.GetW(path)
		return n, err
	})
}

func (ss *session) read(ctx context.Context, path string, f func(*zk.Conn) (node, error)) (node, error) {
	n, _, err := ask(ctx, ss, f)
	if errors.Is(err, zk.ErrNoNode) {
		return node{}, nil
	}
	return n, explain(err, path)
}

// inParallel calls f for 0 to n-1, up to 16 at a time, and returns the first error.
func inParallel(n int, f func(i int) error) (err error) {
	if n == 1 {
		return f(0)
	}
	slots := make(chan struct{}, 16)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(i)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// createNode creates the node of a lock, if it does not exist, and those above it. The
// server deletes it some time after its last child, if it knows containers (3.5.3).
func (ss *session) createNode(ctx context.Context, path string) error {
	_, _, err := ask(ctx, ss, func(c *zk.Conn) (string, error) {
		return c.CreateContainer(path, nil, zk.FlagContainer, ss.s.opt.acl)
	})
	if err != nil && unknownCode(err) { // no containers
		err = ss.createPersistent(ctx, path)
	}
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return ss.createBase(ctx) // the caller tries again
	}
	return explain(err, path)
}

func (ss *session) createPersistent(ctx context.Context, path string) error {
	_, _, err := ask(ctx, ss, func(c *zk.Conn) (string, error) {
		return c.Create(path, nil, zk.FlagPersistent, ss.s.opt.acl)
	})
	return err
}

// deleteIfEmpty deletes the node of a lock. The server refuses that while it has children, so
// no holder or waiter loses its node. It is no error if the node has children, does not exist,
// or may not be deleted by this user.
func (ss *session) deleteIfEmpty(ctx context.Context, path string) error {
	err := ss.deleteNode(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) || permissionDenied(err) {
		return nil
	}
	return err
}

// deleteNode returns an error that says whether the node may be deleted later.
func (ss *session) deleteNode(ctx context.Context, path string) error {
	_, _, err := ask(ctx, ss, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(path, -1)
	})
	return explainChange(err, path)
}

// deleteIfExists is deleteNode, without an error if the node does not exist.
func (ss *session) deleteIfExists(ctx context.Context, path string) error {
	err := ss.deleteNode(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
