package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// A cluster requires of its clients to follow failovers and slots that migrate.
const (
	migrationTimeout = 5 * time.Second // how long a request refused in a migrating slot is repeated
	maxRedirects     = 3
	reloadInterval   = 100 * time.Millisecond // between reloads of the slot map
)

// requestFailed is server.Server.Failed.
func (b *service) requestFailed(ctx context.Context, err error, send func() error) error {
	err = b.retryRefused(ctx, err, send)
	b.failed(err)
	return err
}

// retryRefused is retryMigrating. It also repeats send once if the server cannot write: it may have been demoted, and
// a new connection may reach its successor.
func (b *service) retryRefused(ctx context.Context, err error, send func() error) error {
	err = b.retryMigrating(ctx, err, send)
	if server.CannotWrite(err) {
		b.subs.doubt(err)
		err = b.retryMigrating(ctx, send(), send)
	}
	return err
}

// retryMigrating repeats send, which failed with err, while the server refuses it because the slot migrates and
// the keys of the request are not all on one server (TRYAGAIN): it was not executed.
func (b *service) retryMigrating(ctx context.Context, err error, send func() error) error {
	backoff := 5 * time.Millisecond
	for end := time.Now().Add(migrationTimeout); redis.IsTryAgainError(err); backoff = min(2*backoff, 100*time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil || b.srv.Context().Err() != nil {
			break
		}
		call.Sleep(ctx, backoff)
		err = send()
	}
	return err
}

// failed handles the error of a request.
func (b *service) failed(err error) {
	b.subs.doubt(err)
	b.reloadAfter(err)
}

// reloadAfter reloads the slot map in the background, and moves subscriptions by it, if
// err may be due to a failover. go-redis reloads the map after a redirection and once a
// minute, and connects to a dead master until then.
func (b *service) reloadAfter(err error) {
	if b.srv.Cluster == nil || err == nil {
		return
	}
	var reply redis.Error
	if errors.As(err, &reply) && !redis.IsClusterDownError(err) {
		return // a live server replied
	}
	if b.reloading.Swap(true) {
		return
	}
	b.srv.Go(func() {
		defer b.reloading.Store(false)
		b.reload(b.srv.Context())
		b.subs.followMasters()
		call.Sleep(b.srv.Context(), reloadInterval)
	})
}

// reload reloads the slot map of a cluster. If that fails, the old map stays.
func (b *service) reload(ctx context.Context) {
	if b.srv.Cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, server.ConfirmTimeout)
	defer cancel()
	_ = b.srv.Cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
}

// node is a server of a request with WAIT. go-redis does not follow redirections of a
// pipeline on one connection.
type node struct {
	client redis.UniversalClient
	asking bool // the request must follow ASKING
}

func (b *service) node(ctx context.Context, key string) (node, error) {
	if b.srv.Cluster == nil {
		return node{client: b.srv.Client}, nil
	}
	c, err := b.srv.Cluster.MasterForKey(ctx, key)
	return node{client: c}, err
}

// redirected returns the node to which a request must be sent that failed with err. It
// returns false if err is no redirection.
func (b *service) redirected(ctx context.Context, key string, err error) (node, bool) {
	if b.srv.Cluster == nil || err == nil {
		return node{}, false
	}
	_, moved := redis.IsMovedError(err)
	addr, ask := redis.IsAskError(err)
	if !moved && !ask && !errors.Is(err, redis.ErrClosed) { // closed: the node left the cluster
		return node{}, false
	}
	if ask {
		if c := b.masterAt(ctx, addr); c != nil {
			return node{client: c, asking: true}, true
		}
	}
	b.srv.Cluster.ReloadState(ctx)
	call.Sleep(ctx, 20*time.Millisecond)
	at, err := b.node(ctx, key)
	return at, err == nil
}

// masterAt returns the master with that address, or nil.
func (b *service) masterAt(ctx context.Context, addr string) *redis.Client {
	var mu sync.Mutex
	var found *redis.Client
	_ = b.srv.Cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error { // fails without a slot map
		if c.Options().Addr == addr {
			mu.Lock()
			defer mu.Unlock()
			found = c
		}
		return nil
	})
	return found
}
