package redislock

import (
	"time"

	"github.com/interlock-go/lock/backend"
)

type options struct {
	prefix         string
	replicas       int
	replicaTimeout time.Duration
	allowEviction  bool
	openTimeout    time.Duration
	redlock        redlockOptions
}

func defaults() options {
	return options{prefix: DefaultPrefix, replicaTimeout: time.Second, openTimeout: 10 * time.Second, redlock: redlockDefaults}
}

// Option changes what New does.
type Option func(*options) error

// WithPrefix sets what stands before a lock's name in its key, instead of
// [DefaultPrefix]: "shop" makes it "shop:name". All who share a lock must use the
// same prefix. With an empty prefix the name itself is the key, which is for
// sharing locks with other clients that use SET NX.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// WithWaitReplicas lets a grant and a renewal succeed only when n replicas have
// acknowledged it within the timeout (WAIT). It makes the loss of a lock in a
// failover less likely. It is no consensus and does not exclude it. The timeout
// must be less than the client's read timeout.
func WithWaitReplicas(n int, timeout time.Duration) Option {
	return func(o *options) error {
		if n < 0 || n > maxReplicas {
			return backend.Invalid("number of replicas to wait for", n, "0 to 100")
		}
		if timeout < time.Millisecond {
			return backend.Invalid("timeout of waiting for replicas", timeout, "1ms or more")
		}
		o.replicas, o.replicaTimeout = n, timeout
		return nil
	}
}

// WithEviction accepts a server that may evict locks when its memory is full.
// Without it such a server is refused.
func WithEviction() Option {
	return func(o *options) error { o.allowEviction = true; return nil }
}

const maxReplicas = 100
