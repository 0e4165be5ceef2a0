package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// What a cluster asks of its clients: to follow a failover and a slot that moves.

const (
	migrationPatience = 5 * time.Second
	maxRedirects      = 3
	suspectEvery      = 100 * time.Millisecond
)

// suspect has the map of the cluster read anew after a failure that a failover may
// explain, and subscribes anew what has another master by it. The client library
// reads it after a redirect and once a minute, and dials a dead master until then.
func (b *Backend) suspect(err error) {
	if b.cluster == nil || err == nil {
		return
	}
	var server redis.Error
	if errors.As(err, &server) && !redis.IsClusterDownError(err) {
		return // the right server, or one that knows the right one, has answered
	}
	if b.suspecting.Swap(true) {
		return
	}
	if !b.enter() {
		return
	}
	go func() {
		defer b.wg.Done()
		defer b.suspecting.Store(false)
		b.remap(b.life)
		b.subs.follow()
		sleep(b.life, suspectEvery)
	}()
}

// follow has those subscribed anew that listen at a server which does not serve
// their channel by the map of the cluster.
func (s *subscriptions) follow() {
	s.mu.Lock()
	on := map[string]*listener{}
	for name, c := range s.channels {
		if c.on != nil {
			on[name] = c.on
		}
	}
	s.mu.Unlock()
	for name, l := range on {
		if server, err := s.b.cluster.MasterForKey(s.b.life, name); err == nil && server != l.server {
			s.lost(l, errMoved)
		}
	}
}

var errMoved = errors.New("redis: the slot moved")

// remap reads the map of the cluster anew before it returns, and leaves it as it is
// if that fails.
func (b *Backend) remap(ctx context.Context) {
	if b.cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	_ = b.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
}

// whileMigrating repeats a request for some time that the server of a migrating
// slot refused, because some of its keys are here and some there: it was not
// executed.
func (b *Backend) whileMigrating(ctx context.Context, f func() error) error {
	backoff := 5 * time.Millisecond
	for end := time.Now().Add(migrationPatience); ; backoff = min(2*backoff, 100*time.Millisecond) {
		err := f()
		if !redis.IsTryAgainError(err) || time.Now().After(end) || ctx.Err() != nil || b.life.Err() != nil {
			return err
		}
		sleep(ctx, backoff)
	}
}

// node is where a request is sent, and whether it has to say ASKING there.
type node struct {
	client redis.UniversalClient
	asking bool
}

// node is the server that holds key.
func (b *Backend) node(ctx context.Context, key string) (node, error) {
	if b.cluster == nil {
		return node{client: b.rdb}, nil
	}
	c, err := b.cluster.MasterForKey(ctx, key)
	return node{client: c}, err
}

// redirected is where a request that was refused with err is to be sent instead.
func (b *Backend) redirected(ctx context.Context, key string, err error) (node, bool) {
	if b.cluster == nil || err == nil {
		return node{}, false
	}
	_, moved := redis.IsMovedError(err)
	addr, ask := redis.IsAskError(err)
	closed := errors.Is(err, redis.ErrClosed) // the node left the map
	if !moved && !ask && !closed {
		return node{}, false
	}
	if ask {
		if c := b.nodeAt(ctx, addr); c != nil {
			return node{client: c, asking: true}, true
		}
	}
	b.cluster.ReloadState(ctx)
	sleep(ctx, 20*time.Millisecond)
	at, err := b.node(ctx, key)
	return at, err == nil
}

// nodeAt is the master of that address, nil if the map has none.
func (b *Backend) nodeAt(ctx context.Context, addr string) *redis.Client {
	var mu sync.Mutex
	var found *redis.Client
	_ = b.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error { // fails only without a map
		if c.Options().Addr == addr {
			mu.Lock()
			defer mu.Unlock()
			found = c
		}
		return nil
	})
	return found
}
