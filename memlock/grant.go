package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// grant is an attempt that holds the lock or waits for it. The shard's mutex guards the
// fields that change.
type grant struct {
	b       *Backend
	sh      *shard
	id      lockID
	attempt backend.Contender
	onLost  func(error)

	share    backend.Share
	slots    []int     // of a semaphore; constant once the attempt was granted
	token    uint64    // constant once the attempt was granted
	until    time.Time // the lock is kept until then
	promised time.Time // the end that the last renewal returned, which may be earlier; zero without renewal
	since    time.Time // of the grant, or of the arrival in the queue
}

var (
	_ backend.Grant      = (*grant)(nil)
	_ backend.Keeper     = (*grant)(nil)
	_ backend.Downgrader = (*grant)(nil)
	_ backend.SlotHolder = (*grant)(nil)
)

func (g *grant) Token() uint64 { return g.token }

// Until is exact: holder and "service" use the same clock.
func (g *grant) Until() time.Time {
	g.sh.mu.Lock()
	defer g.sh.mu.Unlock()
	if !g.promised.IsZero() {
		return g.promised
	}
	return g.until
}

func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.keep(ctx, ttl, false)
}

// Keep implements backend.Keeper.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	return g.keep(ctx, d, true)
}

func (g *grant) keep(ctx context.Context, ttl time.Duration, shorten bool) error {
	if err := g.b.check(ctx); err != nil {
		return err
	}
	return g.change(func(e *entry, now time.Time) error {
		g.promised = now.Add(ttl)
		if shorten || g.promised.After(g.until) {
			g.until = g.promised
			e.arm(now)
		}
		return nil
	})
}

// Release ignores ctx: it does not wait.
func (g *grant) Release(context.Context) error {
	if g.b.closed.Load() {
		return backend.ErrClosed
	}
	return g.change(func(e *entry, now time.Time) error {
		e.end(g, now)
		return nil
	})
}

// Downgrade implements backend.Downgrader.
func (g *grant) Downgrade(ctx context.Context) error {
	if err := g.b.check(ctx); err != nil {
		return err
	}
	return g.change(func(e *entry, now time.Time) error {
		if !g.share.Exclusive() {
			return nil
		}
		g.share = backend.Reader
		e.weight = g.share.Weight
		e.admit(now)
		return nil
	})
}

// change calls f with the entry that g holds, under the mutex of the shard. It returns ErrLost if g
// holds none.
func (g *grant) change(f func(e *entry, now time.Time) error) error {
	now := time.Now()
	g.sh.mu.Lock()
	defer g.sh.mu.Unlock()
	e := g.held(now)
	if e == nil {
		return backend.ErrLost
	}
	return f(e, now)
}

// Slots implements backend.SlotHolder.
func (g *grant) Slots() []int { return slices.Clone(g.slots) }

// held returns the entry that g holds, nil if it holds none at now.
func (g *grant) held(now time.Time) *entry {
	if e := g.sh.live(g.id, now); e != nil && slices.Contains(e.holders, g) {
		return e
	}
	return nil
}

func (g *grant) holder(now time.Time) backend.Holder {
	return backend.Holder{Contender: g.contender(now), Token: g.token, Slots: g.Slots(), Left: g.until.Sub(now)}
}

// contender returns what Inspect shows of the attempt at now.
func (g *grant) contender(now time.Time) backend.Contender {
	c := g.attempt
	c.Age, c.Share = now.Sub(g.since), g.share
	return c
}
