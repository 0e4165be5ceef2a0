package etcdlock

import (
	"time"

	"github.com/interlock-go/lock/backend"
)

type options struct {
	prefix  string
	viewMax int
	open    time.Duration // bounds opening
}

func defaults() options {
	return options{prefix: DefaultPrefix, viewMax: 32, open: 5 * time.Second}
}

// Option changes what New does.
type Option func(*options) error

// WithPrefix sets what stands before a lock's name in its keys, instead of
// [DefaultPrefix]. All who share a lock must use the same prefix. A slash in it is
// escaped like one in a name; to put the locks deeper into a tree, wrap the client
// with package namespace of the etcd client.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// WithQueueView sets up to how many contending processes a waiter follows the
// whole queue of its lock, 32 if not given. Following it makes a hand-off take one
// round trip, and every process that waits for the lock is sent two events for
// each. Beyond it a waiter watches only the one before it: a hand-off then takes
// two round trips and concerns nobody else. Zero always does that.
func WithQueueView(processes int) Option {
	return func(o *options) error {
		if processes < 0 || processes > maxView {
			return backend.Invalid("processes that follow a queue", processes, "0 to 10000")
		}
		o.viewMax = processes
		return nil
	}
}

const maxView = 10000
