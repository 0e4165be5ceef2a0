package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Inspect implements backend.Inspector.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	if err := b.check(ctx); err != nil {
		return backend.Info{}, err
	}
	id, now := lockID{b.prefix, key}, time.Now()
	sh := b.space.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.live(id, now); e != nil {
		return e.info(now), nil
	}
	return backend.Info{Name: key}, nil
}

// List implements backend.Lister. It sees one shard at a time, and yields without
// holding a mutex, so yield may use the Backend.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	for i := range b.space.shards {
		if err := b.check(ctx); err != nil {
			return err
		}
		for _, info := range b.listShard(&b.space.shards[i]) {
			if !yield(info) {
				return nil
			}
		}
	}
	return nil
}

func (b *Backend) listShard(sh *shard) []backend.Info {
	now := time.Now()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var infos []backend.Info
	for id := range sh.locks {
		if id.prefix != b.prefix {
			continue
		}
		if e := sh.live(id, now); e != nil {
			infos = append(infos, e.info(now))
		}
	}
	return infos
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	id, now := lockID{b.prefix, key}, time.Now()
	sh := b.space.shard(id)
	sh.mu.Lock()
	e := sh.live(id, now)
	if e == nil {
		sh.mu.Unlock()
		return nil, nil
	}
	var removed []*grant
	for _, g := range e.holders {
		if owner == "" || owner == g.attempt.Owner {
			removed = append(removed, g)
		}
	}
	if len(removed) == 0 {
		err := e.locked(now)
		sh.mu.Unlock()
		return nil, err
	}
	first := removed[0].holder(now)
	for _, g := range removed {
		e.end(g, now)
	}
	sh.mu.Unlock()
	for _, g := range removed {
		if g.onLost != nil {
			g.onLost(fmt.Errorf("%w: broken", backend.ErrLost))
		}
	}
	return &first, nil
}

// Ping implements backend.Pinger.
func (b *Backend) Ping(ctx context.Context) error { return b.check(ctx) }
