package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
)

// Info is the state of a lock at one moment: its holder and its waiters.
type Info = backend.Info

// Holder is the holder of a lock.
type Holder = backend.Holder

// Inspect returns the holder and the waiters of the lock of a name.
func (c *Client) Inspect(ctx context.Context, name string) (info Info, err error) {
	err = askNamed(ctx, c, "inspect", name, func(ctx context.Context, b backend.Inspector) error {
		info, err = b.Inspect(ctx, name)
		return err
	})
	return info, err
}

// Pauses before WatchChanges watches again after a failure.
const minWatchPause, maxWatchPause = 100 * time.Millisecond, 10 * time.Second

// WatchChanges calls changed as soon as the service reports changes of the lock of a name, and
// then after each change of its holder or its waiters, until ctx ends. It watches again after
// a failure. Several changes may be one call, a call may come without a change, and changed
// must not block. With local hand-off a lock that one goroutine of a client passes to
// another one is no change.
//
// WatchChanges returns the error of ctx, or one that repeating cannot change. For a backend
// whose service does not notify clients of changes that matches errors.ErrUnsupported: call
// Inspect at intervals.
func (c *Client) WatchChanges(ctx context.Context, name string, changed func()) error {
	err := validName(name, c.Capabilities())
	pause := retry.Backoff{Next: minWatchPause, Max: maxWatchPause}
	for err == nil {
		begun := time.Now()
		err = c.watchOnce(ctx, name, changed)
		if time.Since(begun) > maxWatchPause {
			pause.Next = minWatchPause
		}
		if retry.Transient(err) && pause.Wait(ctx) {
			err = nil
		}
	}
	return c.wrap("watch", name, retry.WithContext(ctx, err))
}

func (c *Client) watchOnce(ctx context.Context, name string, changed func()) error {
	core, err := c.await(ctx, true)
	if err != nil {
		return err
	}
	return core.engine.RunUnbounded(ctx, func(ctx context.Context) error {
		return call(ctx, core, func(ctx context.Context, b backend.ChangeWatcher) error {
			return b.WatchChanges(ctx, name, changed)
		})
	})
}

// BreakOption restricts Break.
type BreakOption func(*breakConfig)

type breakConfig struct{ owner *string }

// IfHeldBy makes Break free the lock only if owner holds it: the Owner of a Holder that
// Inspect or List has returned. If another holder has the lock, Break changes nothing and
// returns a *LockedError with that holder.
func IfHeldBy(owner string) BreakOption { return func(c *breakConfig) { c.owner = &owner } }

// Break frees the lock of a name and returns the holder that it removed, or nil if there
// was none. Without IfHeldBy it removes any holder. The next waiter gets the lock with
// a greater token. The old holder is notified at once if the backend can push (PushesLoss),
// else by its next renewal. Until then two holders believe that they hold the lock, and
// only fencing tokens distinguish them. With local hand-off the old holder may be another
// goroutine of its client by then. Break is for a person who knows that the holder is
// gone.
func (c *Client) Break(ctx context.Context, name string, opts ...BreakOption) (removed *Holder, err error) {
	var cfg breakConfig
	for _, o := range opts {
		o(&cfg)
	}
	owner := "" // any
	if cfg.owner != nil {
		if owner = *cfg.owner; owner == "" {
			return nil, c.wrap("break", name, backend.Invalid("owner", "", "the owner of a holder"))
		}
	}
	err = askNamed(ctx, c, "break", name, func(ctx context.Context, b backend.Breaker) error {
		removed, err = b.Break(ctx, name, owner)
		return err
	})
	return removed, err
}

// Ping makes one round trip to the backend.
func (c *Client) Ping(ctx context.Context) error {
	return ask(ctx, c, "ping", "", func(ctx context.Context, b backend.Pinger) error { return b.Ping(ctx) })
}

// List yields the locks that are held, in no order. It ends with the first error.
func (c *Client) List(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		stopped := false
		err := ask(ctx, c, "list", "", func(ctx context.Context, b backend.Lister) error {
			return b.List(ctx, func(i Info) bool {
				stopped = !yield(i, nil)
				return !stopped
			})
		})
		if err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

// askNamed is ask for an operation on the lock of a name.
func askNamed[T any](ctx context.Context, c *Client, op, name string, f func(context.Context, T) error) error {
	if err := validName(name, c.Capabilities()); err != nil {
		return c.wrap(op, name, err)
	}
	return ask(ctx, c, op, name, f)
}

// ask calls f with the optional interface T of the backend. If the backend has none, the
// error matches errors.ErrUnsupported.
func ask[T any](ctx context.Context, c *Client, op, name string, f func(context.Context, T) error) error {
	core, err := c.await(ctx, false)
	if err != nil {
		return c.wrap(op, name, err)
	}
	return c.wrap(op, name, core.engine.Run(ctx, func(ctx context.Context) error {
		err := call(ctx, core, f)
		if op != "break" && errors.Is(err, ErrUncertain) {
			err = retry.Known(err, "") // a question has no outcome
		}
		return err
	}))
}

// call calls f with the optional interface T of the backend.
func call[T any](ctx context.Context, core *core, f func(context.Context, T) error) error {
	err := errors.ErrUnsupported
	if b, ok := backend.As[T](core.backend); ok {
		err = f(ctx, b)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("%w by backend %s", err, core.caps.Name)
	}
	return err
}
