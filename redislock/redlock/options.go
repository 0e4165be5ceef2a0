package redlock

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/quorum"
)

type options struct {
	quorum.Options
	openTimeout, nodeTimeout, restartDelay time.Duration
	set                                    string
}

func defaults() options {
	of := quorum.Options{Prefix: protocol.DefaultPrefix, Retention: backend.DefaultRetention}
	return options{of, 10 * time.Second, 500 * time.Millisecond, 5 * time.Minute, ""}
}

// Option changes what New does.
type Option func(*options) error

// WithPrefix sets the prefix of keys, instead of "lock": with "shop" the key is
// "shop:name". All clients that share a lock must use the same prefix. With an empty
// prefix the name is the key, for locks that are shared with other programs that use
// SET NX.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.Prefix = prefix
		return protocol.CheckPrefix(prefix)
	}
}

// WithEviction accepts nodes that may evict locks when their memory is full. Without
// this option such a node is refused.
func WithEviction() Option {
	return func(o *options) error { o.AllowEviction = true; return nil }
}

// WithNodeTimeout sets how long one node may take to answer before the others decide
// without it, instead of 500 ms. It is at most a quarter of the TTL of the request.
func WithNodeTimeout(d time.Duration) Option {
	return func(o *options) error {
		if d < time.Millisecond {
			return backend.Invalid("node timeout", d, "1ms or more")
		}
		o.nodeTimeout = d
		return nil
	}
}

// WithRestartDelay sets how long a node that restarted without its data has no vote,
// instead of 5 minutes. It is the longest TTL, so that every grant that the node has lost
// expires before it votes again. All clients that share locks must use the same value.
func WithRestartDelay(d time.Duration) Option {
	return func(o *options) error {
		if d < minRestartDelay || d > protocol.MaxTTL {
			return backend.Invalid("restart delay", d, fmt.Sprintf("%v to %v", minRestartDelay, protocol.MaxTTL))
		}
		o.restartDelay = d
		return nil
	}
}

// WithDurableNodes declares that every node keeps all acknowledged data over a restart:
// appendonly yes and appendfsync always. Then a restart costs a node its vote only if the
// node is empty. All clients that share locks must use the same setting.
func WithDurableNodes() Option {
	return func(o *options) error { o.Durable = true; return nil }
}

// WithRetention sets how long the nodes keep the fence counter of a name after its last lease,
// instead of a day; 0 keeps it for ever. All clients that share locks should use the same value.
func WithRetention(d time.Duration) Option {
	return func(o *options) error {
		o.Retention = d
		return backend.CheckRetention(d)
	}
}

// WithNodeSet names the set of nodes, instead of the sorted addresses of the clients. A node
// refuses clients of another set. Use it if clients reach the same nodes by different
// addresses. All clients that share locks must use the same name.
func WithNodeSet(name string) Option {
	return func(o *options) error { o.set = name; return nil }
}

const minRestartDelay = time.Second

// DefaultPrefix is the prefix of keys without WithPrefix.
const DefaultPrefix = protocol.DefaultPrefix

// Key returns the key of a lock at each node, as redis-cli shows it and other programs SET it.
func Key(prefix, name string) string { return protocol.LockKey(prefix, name) }
