package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Info is the state of a lock at one moment: its holder and its waiters.
type Info = backend.Info

// Holder is who holds a lock.
type Holder = backend.Holder

// adminTimeout bounds an operation about locks whose context does not.
const adminTimeout = 10 * time.Second

// Inspect tells who holds the lock of a name and who waits for it.
func (c *Client) Inspect(ctx context.Context, name string) (info Info, err error) {
	err = c.admin(ctx, "inspect", name, func(ctx context.Context) error {
		b, ok := c.b.(backend.Inspector)
		if !ok {
			return errors.ErrUnsupported
		}
		show := c.handOff.showing(name)
		info, err = b.Inspect(ctx, name)
		show(info.Holder)
		return err
	})
	return info, err
}

// Break frees the lock of a name, whoever holds it, and returns the holder it
// removed, or nil if there was none. The next waiter gets the lock with a greater
// token. The old holder is told at once where the backend can push (its declared
// PushesLoss), else at its next renewal: until then two believe to hold the lock,
// which only fencing tokens can tell apart; with local hand-off the old holder may be
// another goroutine of its client by then. Break is for a person who knows that
// the holder is gone.
func (c *Client) Break(ctx context.Context, name string) (removed *Holder, err error) {
	err = c.admin(ctx, "break", name, func(ctx context.Context) error {
		b, ok := c.b.(backend.Breaker)
		if !ok {
			return errors.ErrUnsupported
		}
		show := c.handOff.showing(name)
		removed, err = b.Break(ctx, name)
		show(removed)
		return err
	})
	return removed, err
}

// Ping makes one round trip to the backend.
func (c *Client) Ping(ctx context.Context) error {
	return c.admin(ctx, "ping", "", func(ctx context.Context) error {
		b, ok := c.b.(backend.Pinger)
		if !ok {
			return errors.ErrUnsupported
		}
		return b.Ping(ctx)
	})
}

// List yields the locks that are held, in no order. It ends with the first error.
func (c *Client) List(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		stopped := false
		err := c.admin(ctx, "list", "", func(ctx context.Context) error {
			b, ok := c.b.(backend.Lister)
			if !ok {
				return errors.ErrUnsupported
			}
			return b.List(ctx, func(i Info) bool {
				c.handOff.showing(i.Name)(i.Holder)
				stopped = !yield(i, nil)
				return !stopped
			})
		})
		if err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

func (c *Client) admin(ctx context.Context, op, name string, f func(context.Context) error) error {
	if op == "inspect" || op == "break" {
		if err := validName(name, c.caps); err != nil {
			return c.wrap(op, name, err)
		}
	}
	if !c.begin() {
		return c.wrap(op, name, ErrClosed)
	}
	defer c.done()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, adminTimeout)
		defer cancel()
	}
	if ctx.Err() != nil {
		return c.wrap(op, name, contextError(ctx))
	}
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	err := f(bound)
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil && ctx.Err() == nil: // Close has ended it
		if errors.Is(err, ErrUncertain) {
			return c.wrap(op, name, fmt.Errorf("%w: %w", ErrClosed, ErrUncertain))
		}
		return c.wrap(op, name, ErrClosed)
	case errors.Is(err, errors.ErrUnsupported):
		err = fmt.Errorf("%w by backend %s", err, c.caps.Name)
	}
	return c.wrap(op, name, withContext(ctx, err))
}
