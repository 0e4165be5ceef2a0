package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// attempt is one request for a key, from its first step until it is certain that
// nothing of it remains. Its fields belong to whoever runs it: Acquire or
// TryAcquire, then the grant or Abandon.
type attempt struct {
	b   *Backend
	req backend.Request
	dir string // the lock's node

	turn chan struct{} // one at a time: Abandon may be called while a request is left behind

	s     *session // in which path was created, with a use of it counted
	path  string   // own node, "" if there is none or it is not known
	token uint64
	// unsure: a request to create was not answered, so that there may be a node that
	// path does not name. left is closed when that request can no longer be sent.
	unsure bool
	left   <-chan struct{}
	g      *grant

	guarded string // the path of a grant; under Backend.mu
}

// begin registers an attempt. Sent twice, it is the same.
func (b *Backend) begin(req backend.Request) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempts[req.Owner]
	if a == nil {
		a = &attempt{b: b, req: req, dir: b.node(req.Key), turn: make(chan struct{}, 1)}
		b.attempts[req.Owner] = a
	}
	return a
}

func (b *Backend) attempt(owner string) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts[owner]
}

// lock waits for those who work on the attempt. If there is nobody it does not look
// at ctx: who has begun an attempt must be able to forget it.
func (a *attempt) lock(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *attempt) unlock() { <-a.turn }

// gone forgets the attempt: nothing of it remains.
func (a *attempt) gone() {
	a.path, a.unsure, a.left = "", false, nil
	a.leave()
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.b.attempts[a.req.Owner] == a {
		delete(a.b.attempts, a.req.Owner)
	}
}

// join gives the attempt a session that lives. What it had in an earlier one has
// gone with that if the server has ended it.
func (a *attempt) join(ctx context.Context) error {
	if a.s != nil {
		err := a.s.ended()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errSessionOver) && (a.b.own || !a.unsure):
			a.path, a.unsure, a.left = "", false, nil
		case errors.Is(err, errSessionOver): // a caller's connection may have sent the request in the next session
		case a.path != "":
			a.path, a.unsure = "", true
		}
		a.leave()
	}
	s, err := a.b.session(ctx, a.req.TTL)
	if err == nil {
		a.s = s
	}
	return err
}

func (a *attempt) leave() {
	if a.s != nil {
		a.s.unuse()
		a.s = nil
	}
}

// nothing tells whether it is certain that nothing of the attempt remains.
func (a *attempt) nothing() bool {
	return a.path == "" && !a.unsure || a.b.own && a.s != nil && errors.Is(a.s.ended(), errSessionOver)
}

// enter creates the attempt's node, at the end of the queue. alone: there is no
// other child. One round trip, if the lock's node exists.
func (a *attempt) enter(ctx context.Context) (alone bool, err error) {
	s := a.s
	create := func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CreateRequest{Path: a.dir + "/" + a.req.Owner + "-", Data: []byte(a.req.Metadata), Acl: a.b.opt.acl, Flags: zk.FlagEphemeralSequential},
			// changes nothing, and returns the node's state after the creation
			&zk.SetDataRequest{Path: a.dir, Version: -1},
		)
	}
	for range 5 {
		r, left, err := call(ctx, s, true, create)
		if errors.Is(err, zk.ErrNoNode) { // the first use of the name, or the server has tidied up
			if err := a.b.createNode(ctx, s, a.dir); err != nil {
				return false, err
			}
			continue
		}
		if err == nil && (len(r) != 2 || r[1].Stat == nil || !strings.HasPrefix(r[0].String, a.dir+"/")) {
			err = fmt.Errorf("zookeeper: unexpected answer to a multi: %+v", r)
		}
		if err != nil {
			if !answered(err) && !errors.As(err, &notSent{}) {
				a.unsure, a.left = true, left
			}
			return false, explain(err, a.dir)
		}
		a.path, a.token = r[0].String, uint64(r[1].Stat.Mzxid)
		return r[1].Stat.NumChildren == 1, nil
	}
	return false, fmt.Errorf("zookeeper: node %.200q: deleted again and again by somebody", a.dir)
}

// createNode makes a lock's node. The server deletes it some time after the last
// child has gone, if it knows containers (3.5.3).
func (b *Backend) createNode(ctx context.Context, s *session, dir string) error {
	_, _, err := call(ctx, s, true, func(c *zk.Conn) (string, error) {
		return c.CreateContainer(dir, nil, zk.FlagContainer, b.opt.acl)
	})
	if err != nil && strings.HasPrefix(err.Error(), "unknown error: ") { // unimplemented
		_, _, err = call(ctx, s, true, func(c *zk.Conn) (string, error) {
			return c.Create(dir, nil, zk.FlagPersistent, b.opt.acl)
		})
	}
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		if err := b.createBase(ctx, s); err != nil {
			return err
		}
		return nil // the next attempt creates the rest
	}
	return explain(err, dir)
}

// look returns the queue, and the attempt's own place in it; less than 0 if it is
// not there. An earlier node of the same attempt becomes its own.
func (a *attempt) look(ctx context.Context) ([]child, int, error) {
	nodes, _, err := call(ctx, a.s, false, func(c *zk.Conn) ([]string, error) {
		nodes, _, err := c.Children(a.dir)
		return nodes, err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, -1, explain(err, a.dir)
	}
	q := queue(nodes)
	return q, indexOf(q, base(a.path)), nil
}

// find settles what became of a request to create that was not answered.
func (a *attempt) find(ctx context.Context) error {
	if !a.unsure {
		return nil
	}
	if err := a.unsent(ctx); err != nil {
		return err
	}
	mine, err := a.b.nodesOf(ctx, a.s, a.dir, a.req.Owner)
	if err != nil {
		return err
	}
	known := ""
	for _, node := range mine {
		path := a.dir + "/" + node
		stat, err := a.stat(ctx, path)
		switch {
		case err != nil:
			return err
		case stat == nil:
		case known == "" && stat.EphemeralOwner == a.s.conn.SessionID():
			known, a.token = path, uint64(stat.Czxid)
		default: // a second one, or that of a session that was given up
			if err := deleteNode(ctx, a.s, path); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	}
	a.path, a.unsure, a.left = known, false, nil
	return nil
}

// unsent waits until a request that was left behind cannot be sent any more.
func (a *attempt) unsent(ctx context.Context) error {
	if a.left == nil {
		return nil
	}
	select {
	case <-a.left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stat returns the state of a node, nil if there is none.
func (a *attempt) stat(ctx context.Context, path string) (*zk.Stat, error) {
	stat, _, err := call(ctx, a.s, false, func(c *zk.Conn) (*zk.Stat, error) {
		ok, stat, err := c.Exists(path)
		if !ok {
			stat = nil
		}
		return stat, err
	})
	return stat, explain(err, path)
}

// nodesOf returns the nodes of an owner, in their order, as the leader knows them.
func (b *Backend) nodesOf(ctx context.Context, s *session, dir, owner string) ([]string, error) {
	nodes, _, err := call(ctx, s, false, func(c *zk.Conn) ([]string, error) {
		if _, err := c.Sync(b.base); err != nil { // the server may lag behind what was executed
			return nil, err
		}
		nodes, _, err := c.Children(dir)
		return nodes, err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, explain(err, dir)
	}
	var mine []string
	for _, c := range queue(nodes) {
		if c.owner == owner {
			mine = append(mine, c.node)
		}
	}
	return mine, nil
}

func deleteNode(ctx context.Context, s *session, path string) error {
	_, _, err := call(ctx, s, true, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(path, -1)
	})
	return changed(err, path)
}

// Abandon makes sure that nothing remains of an attempt.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	a := b.attempt(req.Owner)
	if a == nil { // of an earlier life of this process, or already gone
		a = &attempt{b: b, req: req, dir: b.node(req.Key), turn: make(chan struct{}, 1), unsure: !b.own}
	}
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	if a.g != nil {
		a.g.stop()
	}
	for range 3 {
		if a.nothing() {
			a.gone()
			return nil
		}
		if err := a.join(ctx); err != nil {
			return err
		}
		err := a.clear(ctx)
		if err == nil {
			a.gone()
		}
		if !sessionGone(err) {
			return err
		}
	}
	return errSessionOver
}

// clear deletes every node of the attempt.
func (a *attempt) clear(ctx context.Context) error {
	paths := []string{a.path}
	if a.unsure {
		if err := a.unsent(ctx); err != nil {
			return err
		}
		mine, err := a.b.nodesOf(ctx, a.s, a.dir, a.req.Owner)
		if err != nil {
			return err
		}
		paths = paths[:0]
		for _, node := range mine {
			paths = append(paths, a.dir+"/"+node)
		}
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := deleteNode(ctx, a.s, path); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// describe is the refusal by those who are in front.
func (a *attempt) describe(ctx context.Context, q []child) *backend.LockedError {
	h := backend.Holder{}
	h.Owner = q[0].owner
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, _, err := call(ctx, a.s, false, func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(a.dir + "/" + q[0].node)
		return node{data, stat}, err
	})
	if err == nil {
		h.Metadata, h.Token = metadata(n.data), uint64(n.stat.Czxid)
	}
	return &backend.LockedError{Holder: h}
}

func metadata(data []byte) string {
	return strings.ToValidUTF8(string(data[:min(len(data), backend.MaxMetadata)]), "\uFFFD")
}
