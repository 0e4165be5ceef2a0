package redislock

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// redlockOptions are those that only NewRedlock knows.
type redlockOptions struct {
	nodeTimeout  time.Duration
	restartDelay time.Duration
	durable      bool
}

var redlockDefaults = redlockOptions{nodeTimeout: 500 * time.Millisecond, restartDelay: 5 * time.Minute}

// WithNodeTimeout sets how long one node of a Redlock may take to answer before the
// others decide without it, instead of 500 ms. It is never more than a quarter of
// the TTL of the request.
func WithNodeTimeout(d time.Duration) Option {
	return func(o *options) error {
		if d < time.Millisecond {
			return backend.Invalid("node timeout", d, "1ms or more")
		}
		o.redlock.nodeTimeout = d
		return nil
	}
}

// WithRestartDelay sets how long a node of a Redlock that came back without all of
// its memory has no vote, instead of 5 minutes. No TTL may be longer: whatever the
// node has forgotten has then run out. All who share locks must use the same.
func WithRestartDelay(d time.Duration) Option {
	return func(o *options) error {
		if d < minRestartDelay || d > maxTTL {
			return backend.Invalid("restart delay", d, fmt.Sprintf("%v to %v", minRestartDelay, maxTTL))
		}
		o.redlock.restartDelay = d
		return nil
	}
}

// WithDurableNodes says that every node of a Redlock keeps over a restart all that
// it acknowledged: appendonly yes and appendfsync always. Then a restart costs a node
// its vote only if it comes back empty. All who share locks must say the same.
func WithDurableNodes() Option {
	return func(o *options) error { o.redlock.durable = true; return nil }
}

const minRestartDelay = time.Second

// notForRedlock refuses what has no meaning for New.
func (o *options) notForRedlock() error {
	if o.redlock != redlockDefaults {
		return fmt.Errorf("%w options: WithNodeTimeout, WithRestartDelay and WithDurableNodes are for NewRedlock", backend.ErrInvalid)
	}
	return nil
}
