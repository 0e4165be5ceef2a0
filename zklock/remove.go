package zklock

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// Remove implements places.Service. The requests of a session are executed in their order, also if it moves to another
// connection. So after an unanswered request to create, a sync and a listing over the same session show whether it was
// executed, and nothing comes later. The nodes of a session that was given up end with it.
func (s *service) Remove(ctx context.Context, all []places.Removal) []places.Removed {
	results := make([]places.Removed, len(all))
	_ = inParallel(len(all), func(i int) error {
		results[i].Existed, results[i].Err = s.remove(ctx, &all[i])
		return nil
	})
	return results
}

func (s *service) remove(ctx context.Context, r *places.Removal) (existed bool, err error) {
	dir := s.lockNode(r.Key)
	own, _ := r.Session.(*session)
	if own == nil {
		own = s.sessionOf(r)
	}
	if own != nil {
		switch end := own.endErr(); {
		case errors.Is(end, errSessionExpired):
			return false, nil // the server has deleted its nodes
		case end == nil:
			e, err := s.enter(ctx, own, dir, cmp.Or(r.Asked.Owner, r.Owner))
			if err != nil {
				return false, backend.NotExecuted(err)
			}
			defer e.unlock()
			if e.path == "" {
				e.unknown = true
			}
			if existed, err = e.remove(ctx); existed && r.Break {
				s.events.Broken(e.owner)
			}
			return existed, err
		}
	}
	ss, _, err := s.home(ctx) // a break, or of an earlier process, or of a session that was given up
	if err != nil {
		return false, backend.NotExecuted(err)
	}
	if r.ID != "" {
		err := ss.deleteNode(ctx, r.ID)
		if errors.Is(err, zk.ErrNoNode) {
			return false, nil
		}
		return err == nil, err
	}
	e := &entry{entryID: entryID{ss, r.Asked.Owner}, dir: dir, unknown: true}
	return e.deleteAll(ctx)
}

// sessionOf returns the session of an attempt of this process, or nil.
func (s *service) sessionOf(r *places.Removal) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ss := range s.sessions {
		if e := s.entries[entryID{ss, cmp.Or(r.Asked.Owner, r.Owner)}]; e != nil && (r.ID == "" || r.ID == e.path) {
			return ss
		}
	}
	return nil
}

// remove deletes what the attempt has, and forgets it.
func (e *entry) remove(ctx context.Context) (existed bool, err error) {
	if e.unknown {
		existed, err = e.deleteAll(ctx)
	} else if err = e.ss.deleteNode(ctx, e.path); err == nil {
		existed = true
	} else if errors.Is(err, zk.ErrNoNode) || errors.Is(err, errSessionExpired) {
		err = nil
	}
	if err == nil && e.mayBeEmpty {
		err = e.ss.deleteIfEmpty(ctx, e.dir)
	}
	if err != nil {
		return existed, err
	}
	e.clear()
	e.mayBeEmpty = false
	e.ss.s.leave(e)
	return existed, nil
}

// deleteAll deletes every node of the attempt.
func (e *entry) deleteAll(ctx context.Context) (existed bool, err error) {
	all, err := e.find(ctx)
	if err != nil {
		return false, err
	}
	for _, f := range all {
		if err := e.ss.deleteIfExists(ctx, f.path); err != nil {
			return existed, err
		}
		existed = true
	}
	return existed, nil
}

// found is a node of an attempt.
type found struct {
	path         string
	child        child
	own          bool // of the session of the entry
	order, token uint64
}

// find returns all nodes of the attempt, in their order. It waits until no request of the attempt can create another one.
func (e *entry) find(ctx context.Context) ([]found, error) {
	if e.pending != nil {
		select {
		case <-e.pending:
		case <-ctx.Done():
			return nil, endOf(ctx)
		}
	}
	if err := e.ss.sync(ctx); err != nil { // the server may not know yet what was executed
		return nil, err
	}
	l, err := e.ss.list(ctx, e.dir)
	if err != nil || l.stat == nil {
		return nil, err
	}
	slices.Sort(l.names) // by sequence number
	var all []found
	for _, name := range l.names {
		c, ok := parseChild(name)
		if !ok || c.owner != e.owner {
			continue
		}
		f := found{path: e.dir + "/" + name, child: c, order: uint64(l.stat.Czxid) + uint64(c.seq)}
		n, err := e.ss.get(ctx, f.path)
		if err != nil {
			return nil, err
		}
		if n.stat != nil {
			f.own, f.token = n.stat.EphemeralOwner == e.ss.conn.SessionID(), uint64(n.stat.Czxid)
			all = append(all, f)
		}
	}
	return all, nil
}
