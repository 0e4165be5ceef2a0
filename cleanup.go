package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
)

// abandonGrace is how long a failed Lock waits for the acknowledgement that nothing
// of it remains. Past it cleaning up goes on in the background.
const abandonGrace = 250 * time.Millisecond

// abandon undoes an attempt whose outcome is not known. It reports whether the
// backend acknowledged that within the grace.
func (c *Client) abandon(req backend.Request) bool {
	acknowledged := c.cleanUp(req, req.TTL+margin(req.TTL), "abandoned attempt", func(ctx context.Context) error {
		return c.b.Abandon(ctx, req)
	})
	grace := time.NewTimer(abandonGrace)
	defer grace.Stop()
	select {
	case ok := <-acknowledged:
		return ok
	case <-grace.C:
		return false
	}
}

// cleanUp repeats undo in the background until the backend acknowledges it, or
// what it would undo has run out by itself, after kept. The channel tells whether
// it was acknowledged.
func (c *Client) cleanUp(req backend.Request, kept time.Duration, what string, undo func(context.Context) error) <-chan bool {
	acknowledged := make(chan bool, 1)
	if !c.beginLate() {
		acknowledged <- false
		return acknowledged
	}
	go func() {
		defer c.done()
		ctx, cancel := c.work, context.CancelFunc(func() {})
		if c.caps.Loss == backend.LossTTL {
			// a session or a process keeps what it holds for as long as it lives, so
			// there is no end to trying; a TTL runs out
			ctx, cancel = context.WithTimeout(c.work, max(kept, 100*time.Millisecond))
		}
		defer cancel()
		err := retry(ctx, req.TTL, undo)
		if err != nil && !errors.Is(err, ErrLost) {
			c.warn(what, req.Key, err)
			acknowledged <- false
			return
		}
		acknowledged <- true
	}()
	return acknowledged
}

// retry repeats f until it succeeds, fails for good, or ctx ends.
func retry(ctx context.Context, ttl time.Duration, f func(context.Context) error) error {
	pause := newBackoff()
	for {
		err := attemptFor(ctx, ttl, f)
		if err == nil || errors.Is(err, ErrLost) || !transient(err) || !pause.wait(ctx) {
			return err
		}
	}
}

// attemptFor makes one attempt, bounded so that several fit into a TTL.
func attemptFor(ctx context.Context, ttl time.Duration, f func(context.Context) error) error {
	return within(ctx, attemptTime(ttl), f)
}

func attemptTime(ttl time.Duration) time.Duration {
	return min(max(ttl/4, 100*time.Millisecond), 2*time.Second)
}

func within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// backoff is a pause that doubles, jittered.
type backoff struct{ next, most time.Duration }

func newBackoff() *backoff { return &backoff{10 * time.Millisecond, 500 * time.Millisecond} }

// wait pauses, and reports false if ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	t := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer t.Stop()
	b.next = min(2*b.next, b.most)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
