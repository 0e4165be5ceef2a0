package zklock

import (
	"context"
	"errors"
	"slices"
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
	all, err := s.readContenders(ctx, dir, queue(names))
	if err != nil {
		return info, err
	}
	held := holders(all)
	assignSlots(all[:held])
	for i, c := range all {
		h := c.holder()
		h.Age = now.age(c.stat)
		switch {
		case i == 0:
			info.Holder = &h
		case i < held:
			info.Others = append(info.Others, h)
		default:
			info.Waiters = append(info.Waiters, h.Contender)
		}
	}
	return info, nil
}

// Break deletes the nodes of the holders of a key, or that of one of them.
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
		n := 1 // places to read: of the exclusive ones only the first holds
		for n < len(q) && q[n].kind != exclusiveNode {
			n++
		}
		held, err := s.readContenders(ctx, dir, q[:n])
		switch {
		case err != nil:
			return nil, err
		case len(held) == 0:
			continue // released meanwhile
		}
		held = held[:holders(held)]
		assignSlots(held)
		broken := slices.DeleteFunc(slices.Clone(held), func(c contender) bool { return owner != "" && owner != c.owner })
		if len(broken) == 0 {
			return nil, &backend.LockedError{Holder: held[0].holder()}
		}
		if h, err := s.deleteHolders(ctx, dir, broken); h != nil || err != nil {
			return h, err
		}
	}
}

// deleteHolders deletes the nodes of holders, each of which belongs to one attempt only. It
// returns the first that was not released meanwhile.
func (s *session) deleteHolders(ctx context.Context, dir string, held []contender) (*backend.Holder, error) {
	errs := make([]error, len(held))
	inParallel(len(held), func(i int) { errs[i] = s.deleteNode(ctx, dir+"/"+held[i].node) })
	var first *backend.Holder
	for i, err := range errs {
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, err
		case first == nil:
			h := held[i].holder()
			first = &h
		}
	}
	return first, nil
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
