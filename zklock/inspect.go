package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// member is one in the queue with what its node says.
type member struct {
	child
	data []byte
	stat *zk.Stat // nil: it has gone meanwhile
}

// Inspect tells who holds and who waits for a key, as the leader knows it.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	s, err := b.any(ctx)
	if err != nil {
		return backend.Info{}, err
	}
	defer s.unuse()
	now, err := b.now(ctx, s, b.node(key))
	if errors.Is(err, zk.ErrNoAuth) { // of somebody who may only look
		err = b.sync(ctx, s)
	}
	if err != nil {
		return backend.Info{}, err
	}
	return b.inspect(ctx, s, key, now)
}

// leaderTime is what the leader's clock showed at an instant of ours, or earlier. Nil
// is not known.
type leaderTime struct {
	ms int64
	at time.Time
}

// now reads the leader's clock, in the only way there is: by a change, the same that
// every acquire makes to the lock's node. What is read after it is no older. Nil
// without an error: there is no such node.
func (b *Backend) now(ctx context.Context, s *session, dir string) (*leaderTime, error) {
	sent := time.Now()
	stat, _, err := call(ctx, s, true, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(dir, nil, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, dir)
	}
	return &leaderTime{stat.Mtime, sent}, nil
}

// age is how long ago a node was created by the leader's clock, and a little more.
// Leaders are different machines, so it is never less than nothing.
func (n *leaderTime) age(stat *zk.Stat) time.Duration {
	if n == nil {
		return 0
	}
	return max(0, time.Duration(n.ms-stat.Ctime)*time.Millisecond) + time.Since(n.at)
}

func (b *Backend) sync(ctx context.Context, s *session) error {
	_, _, err := call(ctx, s, false, func(c *zk.Conn) (string, error) { return c.Sync(b.base) })
	return explain(err, b.base)
}

func (b *Backend) inspect(ctx context.Context, s *session, key string, now *leaderTime) (backend.Info, error) {
	info := backend.Info{Name: key}
	members, err := b.members(ctx, s, b.node(key), -1)
	if err != nil {
		return info, err
	}
	for _, m := range members {
		p := backend.Party{Owner: m.owner, Metadata: metadata(m.data), Age: now.age(m.stat)}
		if info.Holder == nil {
			info.Holder = &backend.Holder{Party: p, Token: uint64(m.stat.Czxid)}
		} else {
			info.Waiters = append(info.Waiters, p)
		}
	}
	return info, nil
}

// members reads the first most nodes of a queue, all if that is negative, a few at
// a time.
func (b *Backend) members(ctx context.Context, s *session, dir string, most int) ([]member, error) {
	nodes, _, err := call(ctx, s, false, func(c *zk.Conn) ([]string, error) {
		nodes, _, err := c.Children(dir)
		return nodes, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, dir)
	}
	q := queue(nodes)
	if most >= 0 {
		q = q[:min(most, len(q))]
	}
	all := make([]member, len(q))
	errs := make([]error, len(q))
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i, c := range q {
		all[i].child = c
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			path := dir + "/" + c.node
			m, _, err := call(ctx, s, false, func(conn *zk.Conn) (member, error) {
				data, stat, err := conn.Get(path)
				return member{c, data, stat}, err
			})
			switch {
			case err == nil:
				all[i] = m
			case !errors.Is(err, zk.ErrNoNode):
				errs[i] = explain(err, path)
			}
		})
	}
	wg.Wait()
	here := all[:0]
	for i, m := range all {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if m.stat != nil {
			here = append(here, m)
		}
	}
	return here, nil
}

// Break deletes the node of whoever holds a key.
func (b *Backend) Break(ctx context.Context, key string) (*backend.Holder, error) {
	s, err := b.any(ctx)
	if err != nil {
		return nil, err
	}
	defer s.unuse()
	dir := b.node(key)
	for {
		if err := b.sync(ctx, s); err != nil {
			return nil, err
		}
		head, err := b.members(ctx, s, dir, 1)
		if err != nil {
			return nil, err
		}
		if len(head) == 0 {
			// free, or released between two looks
			if q, err := b.members(ctx, s, dir, -1); err != nil || len(q) == 0 {
				return nil, err
			}
			continue
		}
		m := head[0]
		// The name is that of one attempt, so that nobody else can be hit.
		err = deleteNode(ctx, s, dir+"/"+m.node)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &backend.Holder{
			Party: backend.Party{Owner: m.owner, Metadata: metadata(m.data)},
			Token: uint64(m.stat.Czxid),
		}, nil
	}
}

// List lists the held keys.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	s, err := b.any(ctx)
	if err != nil {
		return err
	}
	defer s.unuse()
	if err := b.sync(ctx, s); err != nil {
		return err
	}
	nodes, _, err := call(ctx, s, false, func(c *zk.Conn) ([]string, error) {
		nodes, _, err := c.Children(b.base)
		return nodes, err
	})
	if err != nil {
		return explain(err, b.base)
	}
	var now *leaderTime
	for _, n := range nodes {
		name, ok := unescape(n)
		if !ok {
			continue
		}
		if now == nil { // one reading serves them all
			if now, err = b.now(ctx, s, b.node(name)); err != nil && !errors.Is(err, zk.ErrNoAuth) {
				return err
			}
		}
		info, err := b.inspect(ctx, s, name, now)
		if err != nil {
			return err
		}
		if info.Holder != nil && !yield(info) {
			return nil
		}
	}
	return nil
}
