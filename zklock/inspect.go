package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// Inspect returns the holder and the waiters of a key, as the leader knows them.
func (b *Backend) Inspect(ctx context.Context, key string) (info backend.Info, err error) {
	err = b.svc.do(ctx, func(ss *session) error {
		now, err := ss.leaderTime(ctx, b.svc.lockNode(key))
		if errors.Is(err, zk.ErrNoAuth) { // a user without WRITE
			err = ss.sync(ctx)
		}
		if err == nil {
			info, err = ss.inspect(ctx, key, now)
		}
		return err
	})
	return info, err
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
func (ss *session) leaderTime(ctx context.Context, dir string) (*leaderTime, error) {
	sent := time.Now()
	stat, _, err := ask(ctx, ss, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(dir, nil, -1) })
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

func (ss *session) inspect(ctx context.Context, key string, now *leaderTime) (backend.Info, error) {
	info := backend.Info{Name: key}
	q, err := ss.queue(ctx, ss.s.lockNode(key), places.All, reading{all: true, now: now})
	for _, p := range q.Unrecorded(len(q.Places)) {
		q.Places[q.Index(p.ID)].Slots = p.Slots
	}
	held := q.Holders()
	for i, p := range q.Places {
		h := p.Holder()
		switch {
		case i == 0:
			info.Holder = &h
		case i < held:
			info.Others = append(info.Others, h)
		default:
			info.Waiters = append(info.Waiters, h.Contender)
		}
	}
	return info, err
}

// List yields the held keys.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	return b.svc.do(ctx, func(ss *session) error {
		if err := ss.sync(ctx); err != nil {
			return err
		}
		l, err := ss.list(ctx, b.svc.base)
		if err != nil {
			return err
		}
		var now *leaderTime
		for _, n := range l.names {
			key, ok := unescape(n)
			if !ok {
				continue
			}
			if now == nil { // read once for all keys
				if now, err = ss.leaderTime(ctx, b.svc.lockNode(key)); err != nil && !errors.Is(err, zk.ErrNoAuth) {
					return err
				}
			}
			info, err := ss.inspect(ctx, key, now)
			if err != nil {
				return err
			}
			if info.Holder != nil && !yield(info) {
				return nil
			}
		}
		return nil
	})
}
