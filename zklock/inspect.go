package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// Inspect returns the holder and the waiters of a key, as the leader knows them.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	s, err := b.anySession(ctx)
	if err != nil {
		return backend.Info{}, err
	}
	defer s.release()
	now, err := s.leaderTime(ctx, b.lockNode(key))
	if errors.Is(err, zk.ErrNoAuth) { // a user without WRITE
		err = s.sync(ctx)
	}
	if err != nil {
		return backend.Info{}, err
	}
	return s.inspect(ctx, key, now)
}

// leaderTime is what the clock of the leader showed at a local instant or before it. Nil:
// not known.
type leaderTime struct {
	ms int64
	at time.Time
}

// leaderTime reads the clock of the leader by the change to the lock's node that every
// acquire makes. What the session reads after that is no older. It returns nil if the
// node does not exist.
func (s *session) leaderTime(ctx context.Context, dir string) (*leaderTime, error) {
	sent := time.Now()
	stat, _, err := call(ctx, s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(dir, nil, -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, explain(err, dir)
	}
	return &leaderTime{stat.Mtime, sent}, nil
}

// age returns how long ago a node was created. It is not negative, though the clock of an
// earlier leader may have been ahead.
func (n *leaderTime) age(stat *zk.Stat) time.Duration {
	if n == nil {
		return 0
	}
	return max(0, time.Duration(n.ms-stat.Ctime)*time.Millisecond) + time.Since(n.at)
}

func (s *session) inspect(ctx context.Context, key string, now *leaderTime) (backend.Info, error) {
	info := backend.Info{Name: key}
	dir := s.b.lockNode(key)
	names, err := s.children(ctx, dir)
	if err != nil {
		return info, err
	}
	q := queue(names)
	for i, c := range q {
		names[i] = c.node
	}
	nodes, err := s.readAll(ctx, dir, names[:len(q)], s.get)
	if err != nil {
		return info, err
	}
	for i, n := range nodes {
		if n.stat == nil { // deleted meanwhile
			continue
		}
		h := newHolder(q[i].owner, n)
		h.Age = now.age(n.stat)
		if info.Holder == nil {
			info.Holder = &h
		} else {
			info.Waiters = append(info.Waiters, h.Contender)
		}
	}
	return info, nil
}

// Break deletes the node of the holder of a key.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	s, err := b.anySession(ctx)
	if err != nil {
		return nil, err
	}
	defer s.release()
	dir := b.lockNode(key)
	for {
		if err := s.sync(ctx); err != nil {
			return nil, err
		}
		names, err := s.children(ctx, dir)
		if err != nil {
			return nil, err
		}
		q := queue(names)
		if len(q) == 0 {
			return nil, nil
		}
		path := dir + "/" + q[0].node // the name belongs to one attempt only
		n, err := s.get(ctx, path)
		h := newHolder(q[0].owner, n)
		if err == nil && n.stat != nil {
			if owner != "" && owner != h.Owner {
				return nil, &backend.LockedError{Holder: h}
			}
			err = s.deleteNode(ctx, path)
		}
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && n.stat == nil:
			continue // released meanwhile
		case err != nil:
			return nil, err
		}
		return &h, nil
	}
}

// List yields the held keys.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	s, err := b.anySession(ctx)
	if err != nil {
		return err
	}
	defer s.release()
	if err := s.sync(ctx); err != nil {
		return err
	}
	nodes, err := s.children(ctx, b.base)
	if err != nil {
		return err
	}
	var now *leaderTime
	for _, n := range nodes {
		key, ok := unescape(n)
		if !ok {
			continue
		}
		if now == nil { // read once for all keys
			if now, err = s.leaderTime(ctx, b.lockNode(key)); err != nil && !errors.Is(err, zk.ErrNoAuth) {
				return err
			}
		}
		info, err := s.inspect(ctx, key, now)
		if err != nil {
			return err
		}
		if info.Holder != nil && !yield(info) {
			return nil
		}
	}
	return nil
}
