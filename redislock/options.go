package redislock

import (
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/redisurl"
)

type options struct {
	prefix         string
	replicas       int
	replicaTimeout time.Duration
	allowEviction  bool
	openTimeout    time.Duration
}

func defaults() options {
	return options{prefix: DefaultPrefix, replicaTimeout: time.Second, openTimeout: 10 * time.Second}
}

// Option is an option of New.
type Option func(*options) error

// WithPrefix sets the prefix of keys instead of [DefaultPrefix]: with "shop" the key of a
// lock is "shop:name". All clients that share a lock must use the same prefix. With an
// empty prefix the name is the key, to share locks with other clients that use SET NX.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return protocol.CheckPrefix(prefix)
	}
}

// WithWaitReplicas lets a grant and a renewal succeed only if n replicas acknowledge it
// within the timeout (WAIT), which must be less than the read timeout of the client. It
// makes the loss of a lock in a failover less likely, but does not exclude it.
func WithWaitReplicas(n int, timeout time.Duration) Option {
	return func(o *options) error {
		if n < 0 || n > redisurl.MaxReplicas {
			return backend.Invalid("number of replicas to wait for", n, "0 to 100")
		}
		if timeout < time.Millisecond {
			return backend.Invalid("timeout of waiting for replicas", timeout, "1ms or more")
		}
		o.replicas, o.replicaTimeout = n, timeout
		return nil
	}
}

// WithEviction accepts a server that may evict locks when its memory is full. By default
// New refuses such a server.
func WithEviction() Option {
	return func(o *options) error { o.allowEviction = true; return nil }
}
