package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
)

// service is the places.Service of ZooKeeper: a place is an ephemeral sequential node, and a session one of ZooKeeper.
type service struct {
	opt     options
	base    string // the node below which all locks are
	addrs   []string
	auth    []byte // user:password for digest, nil for none
	limits  limits
	life    *call.Life
	events  places.Events
	closing sync.WaitGroup // sessions that were not closed yet

	mu       sync.Mutex // guards the fields below; taken before session.mu
	closed   bool
	sessions map[*session]struct{}              // that have not ended
	spare    map[time.Duration]*session         // of these, by TTL, those that the machine has not asked for yet
	current  *session                           // over whose connection nodes are read and watched, see home
	entries  map[entryID]*entry                 // attempts that may have a node
	permits  map[string]map[string]places.Place // by lock node and id: nodes of permits that were read
	held     map[string]struct{}                // lock nodes that were not free when a Try last looked
	used     map[string]time.Time               // when the process last used the node of a lock
}

var _ places.Service = (*service)(nil)

// lockNode returns the path of the node of a key.
func (s *service) lockNode(key string) string { return Node(s.opt.root, s.opt.prefix, key) }

// do calls f with a session, and Close waits for it.
func (s *service) do(ctx context.Context, f func(*session) error) error {
	if !s.life.Enter() {
		return backend.ErrClosed
	}
	defer s.life.Leave()
	ss, _, err := s.home(ctx)
	if err != nil {
		return err
	}
	return f(ss)
}

// home returns the session over which nodes are read and watched, the same one as long as it lasts: events of one
// connection, and the replies to its requests, arrive in the order of the changes. behind: it may not know what other
// sessions of this process have done.
func (s *service) home(ctx context.Context) (ss *session, behind bool, err error) {
	s.mu.Lock()
	if ss = s.current; ss == nil {
		for ss = range s.sessions {
			break
		}
		if ss == nil {
			ss, err = s.spareLocked(min(max(spareTTL, s.limits.least), s.limits.most))
		}
		s.current = ss
	}
	behind = len(s.sessions) > 1
	s.mu.Unlock()
	if err == nil {
		err = ss.awaitOpen(ctx)
	}
	return ss, behind, err
}

// Read implements places.Service.
func (s *service) Read(ctx context.Context, key string, upTo uint64, last int) (places.Queue, error) {
	dir := s.lockNode(key)
	ss, behind, err := s.home(ctx)
	if err == nil && (behind || upTo == places.All) {
		err = ss.sync(ctx)
	}
	if err != nil {
		return places.Queue{}, err
	}
	return ss.queue(ctx, dir, upTo, reading{first: last == 1, holders: upTo == places.All})
}

// Check implements places.Service. Own places are checked by a change, which a majority confirms, and which proves that
// the session lasts: a renewal costs one request, also for many places. Others are read.
func (s *service) Check(ctx context.Context, all []places.Place) ([]places.Change, error) {
	own, others := map[*session][]int{}, []int(nil)
	s.mu.Lock()
	for i, p := range all {
		if e := s.ownerOf(&p); e != nil {
			own[e.ss] = append(own[e.ss], i)
		} else {
			others = append(others, i)
		}
	}
	s.mu.Unlock()
	changes := make([]places.Change, len(all))
	for ss, mine := range own {
		for ; len(mine) > 0; mine = mine[min(len(mine), maxOps):] {
			part := mine[:min(len(mine), maxOps)]
			var ops []any
			for _, i := range part {
				ops = append(ops, &zk.CheckVersionRequest{Path: all[i].ID, Version: -1})
			}
			_, _, err := ask(ctx, ss, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
			if errors.Is(err, zk.ErrNoNode) {
				err = ss.compare(ctx, all, part, changes)
			}
			if err != nil {
				return nil, explain(err, path.Dir(all[part[0]].ID))
			}
		}
	}
	if len(others) == 0 {
		return changes, nil
	}
	ss, behind, err := s.home(ctx)
	if err == nil && behind {
		err = ss.sync(ctx)
	}
	if err == nil {
		err = ss.compare(ctx, all, others, changes)
	}
	return changes, err
}

// ownerOf returns the entry of a place that this process has put, or nil. s.mu is held.
func (s *service) ownerOf(p *places.Place) *entry {
	for ss := range s.sessions {
		if e := s.entries[entryID{ss, p.Owner}]; e != nil && e.path == p.ID {
			return e
		}
	}
	return nil
}

// compare reads the places with these indices.
func (ss *session) compare(ctx context.Context, all []places.Place, indices []int, changes []places.Change) error {
	return inParallel(len(indices), func(n int) error {
		i := indices[n]
		read, err := ss.get(ctx, all[i].ID)
		changes[i] = read.change(&all[i])
		return err
	})
}

// change compares a node with what is known of it. Names are not used again for another attempt.
func (n *node) change(p *places.Place) places.Change {
	switch {
	case n.stat == nil || p.Token > 0 && uint64(n.stat.Czxid) != p.Token:
		return places.Ended
	case uint64(n.stat.Version) != p.Version:
		return places.Updated
	}
	return places.Unchanged
}

// Update implements places.Service. The name, the position and the token of a node stay.
func (s *service) Update(ctx context.Context, all []places.Place) (done bool, err error) {
	dir := path.Dir(all[0].ID)
	var ops []any
	for _, p := range all {
		c, _ := parseChild(path.Base(p.ID))
		ops = append(ops, &zk.SetDataRequest{Path: p.ID, Data: dataOf(&p, c.kind), Version: int32(p.Version)})
		if c.kind == exclusiveNode { // it becomes that of a reader: for those that watch the children
			noted := dir + "/" + p.Owner + "-downgraded"
			ops = append(ops,
				&zk.CreateRequest{Path: noted, Acl: s.opt.acl, Flags: zk.FlagEphemeral}, &zk.DeleteRequest{Path: noted, Version: -1})
		}
	}
	s.mu.Lock()
	e := s.ownerOf(&all[len(all)-1])
	s.mu.Unlock()
	var ss *session
	if e != nil {
		ss = e.ss
	} else if ss, _, err = s.home(ctx); err != nil {
		return false, backend.NotExecuted(err)
	}
	_, _, err = ask(ctx, ss, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		return false, nil
	case err != nil:
		return false, explainChange(err, dir)
	}
	for i := range all {
		all[i].Version++
	}
	return true, nil
}

// Close implements places.Service.
func (s *service) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	var open []*session
	for ss := range s.sessions {
		open = append(open, ss)
	}
	s.mu.Unlock()
	for _, ss := range open {
		ss.end(backend.ErrClosed)
	}
	done := make(chan struct{})
	go func() {
		s.closing.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zookeeper: closing sessions: %w", ctx.Err())
	}
}
