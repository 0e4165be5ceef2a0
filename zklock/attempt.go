package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// attempt is one request for a key, from its first step until it is certain that
// nothing of it remains at the server. Its fields belong to the owner of busy.
type attempt struct {
	b   *Backend
	req backend.Request
	dir string // the lock's node

	// busy has capacity 1 and is full while a call works on the attempt: Abandon may be
	// called while an earlier call has not returned.
	busy chan struct{}

	s     *session // in which path was created; retained
	path  string   // its node, "" if there is none or it is not known
	token uint64
	slots []int // of permits, when it is certain that the attempt holds them
	// createUnknown: a request to create was not answered, so there may be a node that
	// path does not name. pending, if not nil, is closed when the library can no longer
	// send that request.
	createUnknown bool
	pending       <-chan struct{}
	// mayBeEmpty: the attempt created the lock's node, or may have, and no node below it. The
	// server would keep that for ever: it deletes containers that have lost their last child.
	mayBeEmpty bool

	granted atomic.Pointer[grant]
}

func (b *Backend) newAttempt(req backend.Request) *attempt {
	return &attempt{b: b, req: req, dir: b.lockNode(req.Key), busy: make(chan struct{}, 1)}
}

// register returns the attempt of an owner id, a new one if there is none.
func (b *Backend) register(req backend.Request) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempts[req.Owner]
	if a == nil {
		a = b.newAttempt(req)
		b.attempts[req.Owner] = a
	}
	return a
}

func (b *Backend) attempt(owner string) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts[owner]
}

// lock waits for other calls that work on the attempt. If there are none it ignores
// ctx: the call that registered an attempt must be able to forget it.
func (a *attempt) lock(ctx context.Context) error {
	select {
	case a.busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case a.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *attempt) unlock() { <-a.busy }

// forget unregisters the attempt, of which nothing remains.
func (a *attempt) forget() {
	a.clearNode()
	a.leaveSession()
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.b.noteUseLocked(a.dir)
	if a.b.attempts[a.req.Owner] == a {
		delete(a.b.attempts, a.req.Owner)
	}
}

// clearNode notes that the attempt certainly has no node.
func (a *attempt) clearNode() { a.path, a.createUnknown, a.pending = "", false, nil }

// joinSession gives the attempt an open session. A node of a session that the server
// ended is gone. A node of a session that the driver gave up may still exist.
func (a *attempt) joinSession(ctx context.Context) error {
	if a.s != nil {
		err := a.s.endErr()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errSessionExpired):
			a.clearNode()
		case a.path != "":
			a.path, a.createUnknown = "", true
		}
		a.leaveSession()
	}
	s, err := a.b.session(ctx, a.req.TTL)
	if err == nil {
		a.s = s
	}
	return err
}

func (a *attempt) leaveSession() {
	if a.s != nil {
		a.s.release()
		a.s = nil
	}
}

// nothingRemains reports whether it is certain that the server has no node of the
// attempt, and will not create one.
func (a *attempt) nothingRemains() bool {
	return !a.mayBeEmpty && (a.path == "" && !a.createUnknown || a.s != nil && errors.Is(a.s.endErr(), errSessionExpired))
}

// enqueue creates the attempt's node at the end of the queue. alone: the lock's node has
// no other child. It takes one round trip if the lock's node exists. The error is a
// *usedUpError if the attempt must wait for the end of the queue.
func (a *attempt) enqueue(ctx context.Context) (alone bool, err error) {
	s, k := a.s, kindOf(a.req.Share)
	data := content{metadata: a.req.Metadata, share: a.req.Share}.data(k)
	create := func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CreateRequest{Path: a.dir + "/" + a.req.Owner + "-" + k.zeros(), Data: data, Acl: a.b.opt.acl, Flags: zk.FlagEphemeralSequential},
			// changes nothing, and returns the state of the lock's node after the creation
			&zk.SetDataRequest{Path: a.dir, Version: -1},
		)
	}
	for range 5 {
		r, pending, err := call(ctx, s, create)
		if errors.Is(err, zk.ErrNoNode) { // first use of the key, or the server has deleted the empty container
			err := s.createNode(ctx, a.dir)
			a.mayBeEmpty = err == nil || !answered(err)
			if err != nil {
				return false, err
			}
			continue
		}
		if err == nil && (len(r) != 2 || r[1].Stat == nil || !strings.HasPrefix(r[0].String, a.dir+"/")) {
			err = fmt.Errorf("zookeeper: unexpected reply to a multi: %+v", r)
		}
		a.mayBeEmpty = a.mayBeEmpty && err != nil
		if err != nil {
			if !answered(err) && !errors.As(err, &notSent{}) {
				a.createUnknown, a.pending = true, pending
			}
			return false, explain(err, a.dir)
		}
		if !inOrder(r[0].String) {
			if err := a.replaceLockNode(ctx, r[0].String); err != nil {
				return false, err
			}
			continue
		}
		a.path, a.token = r[0].String, uint64(r[1].Stat.Mzxid)
		return r[1].Stat.NumChildren == 1, nil
	}
	return false, fmt.Errorf("zookeeper: node %.200q is deleted again and again", a.dir)
}

// position returns the queue and the index of the attempt in it. It is an error if the
// attempt's node was deleted.
func (a *attempt) position(ctx context.Context) ([]child, int, error) {
	names, err := a.s.children(ctx, a.dir)
	if err != nil {
		return nil, -1, err
	}
	q := queue(names)
	i, err := a.find(q)
	return q, i, err
}

// find returns the index of the attempt in the queue.
func (a *attempt) find(q []child) (int, error) {
	own := path.Base(a.path)
	i := slices.IndexFunc(q, func(c child) bool { return c.node == own })
	if i < 0 {
		return i, a.nodeDeleted()
	}
	return i, nil
}

// nodeDeleted returns the error of an attempt whose node was deleted.
func (a *attempt) nodeDeleted() error {
	err := fmt.Errorf("zookeeper: node %.200q was deleted", a.path)
	a.path = ""
	return err
}

// resolveCreate finds out whether a request to create that was not answered was
// executed. It keeps one node, of this session, and deletes all others of the attempt.
func (a *attempt) resolveCreate(ctx context.Context) error {
	if !a.createUnknown {
		return nil
	}
	paths, err := a.findNodes(ctx)
	if err != nil {
		return err
	}
	known := ""
	for _, path := range paths {
		n, err := a.s.get(ctx, path)
		switch {
		case err != nil:
			return err
		case n.stat == nil:
		case known == "" && n.stat.EphemeralOwner == a.s.conn.SessionID() && inOrder(path):
			known, a.token = path, uint64(n.stat.Czxid)
		default:
			if err := a.s.deleteIfExists(ctx, path); err != nil {
				return err
			}
		}
	}
	a.clearNode()
	a.path = known
	return nil
}

// findNodes returns the paths of all nodes of the attempt. It waits until no request of
// the attempt can create another one.
func (a *attempt) findNodes(ctx context.Context) ([]string, error) {
	if a.pending != nil {
		select {
		case <-a.pending:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := a.s.sync(ctx); err != nil { // the server may not know yet what was executed
		return nil, err
	}
	names, err := a.s.children(ctx, a.dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names) // by sequence number
	var paths []string
	for _, name := range names {
		if c, ok := parseChild(name); ok && c.owner == a.req.Owner {
			paths = append(paths, a.dir+"/"+name)
		}
	}
	return paths, nil
}

// Abandon deletes every node of an attempt.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	a := b.attempt(req.Owner)
	if a == nil { // nothing remains, or the attempt is of an earlier process
		a = b.newAttempt(req)
	}
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	if g := a.granted.Load(); g != nil {
		g.end(errReleased)
	}
	for range 4 {
		if a.nothingRemains() {
			a.forget()
			return nil
		}
		if err := a.joinSession(ctx); err != nil {
			return err
		}
		if err := a.deleteNodes(ctx); err != nil && !sessionEnded(err) {
			return err
		}
	}
	return errSessionExpired
}

func (a *attempt) deleteNodes(ctx context.Context) (err error) {
	var paths []string
	if a.createUnknown {
		if paths, err = a.findNodes(ctx); err != nil {
			return err
		}
	} else if a.path != "" {
		paths = append(paths, a.path)
	}
	for _, path := range paths {
		if err := a.s.deleteIfExists(ctx, path); err != nil {
			return err
		}
	}
	if a.mayBeEmpty {
		if err := a.s.deleteIfEmpty(ctx, a.dir); err != nil {
			return err
		}
		a.mayBeEmpty = false
	}
	a.clearNode()
	return nil
}

// lockedError returns the error of an attempt that found the queue q. What else is
// known of the holder than its owner id costs a round trip.
func (a *attempt) lockedError(ctx context.Context, q []child) *backend.LockedError {
	n, _ := a.s.get(ctx, a.dir+"/"+q[0].node) // no stat after an error
	return &backend.LockedError{Holder: newHolder(q[0], n)}
}

// newHolder returns the owner of a place and what its node says, if that exists.
func newHolder(c child, n node) backend.Holder {
	x := contender{child: c, stat: n.stat}
	if n.stat != nil || c.kind == readerNode {
		x.content = contentOf(c.kind, n.data)
	}
	return x.holder()
}

func (c contender) holder() backend.Holder {
	h := backend.Holder{Contender: backend.Contender{Owner: c.owner, Share: c.share}, Slots: c.slots}
	h.Metadata = strings.ToValidUTF8(c.metadata[:min(len(c.metadata), backend.MaxMetadata)], "\uFFFD")
	if c.stat != nil {
		h.Token = uint64(c.stat.Czxid)
	}
	return h
}
