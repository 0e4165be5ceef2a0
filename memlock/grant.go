package memlock

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
)

// grant is a hold, or what is to become one. The fields that change are guarded by
// the shard's mutex.
type grant struct {
	b      *Backend
	sh     *shard
	id     lockID
	party  backend.Party
	onLost func(error)

	token uint64    // does not change once the attempt has been told of its grant
	until time.Time // kept until then
	told  time.Time // the end that the last renewal told of, which may be earlier; zero if there was none
	since time.Time // the grant, or before it the attempt's arrival
}

var (
	_ backend.Grant  = (*grant)(nil)
	_ backend.Keeper = (*grant)(nil)
)

func (g *grant) Token() uint64 { return g.token }

// Until is exact: holder and "service" read the same clock.
func (g *grant) Until() time.Time {
	g.sh.mu.Lock()
	defer g.sh.mu.Unlock()
	if !g.told.IsZero() {
		return g.told
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
	now := time.Now()
	g.sh.mu.Lock()
	defer g.sh.mu.Unlock()
	e := g.held(now)
	if e == nil {
		return backend.ErrLost
	}
	g.told = now.Add(ttl)
	if shorten || g.told.After(g.until) {
		g.until = g.told
		e.arm(now)
	}
	return nil
}

// Release does not look at ctx: it is over before a context could matter.
func (g *grant) Release(context.Context) error {
	if g.b.closed.Load() {
		return backend.ErrClosed
	}
	now := time.Now()
	g.sh.mu.Lock()
	defer g.sh.mu.Unlock()
	e := g.held(now)
	if e == nil {
		return backend.ErrLost
	}
	e.pass(now)
	return nil
}

// held returns the entry that g holds, nil if it holds none at now.
func (g *grant) held(now time.Time) *entry {
	if e := g.sh.live(g.id, now); e != nil && e.holder == g {
		return e
	}
	return nil
}

func (g *grant) holder(now time.Time) backend.Holder {
	return backend.Holder{Party: g.seen(now), Token: g.token, Left: g.until.Sub(now)}
}

// seen is what others see of the party at now.
func (g *grant) seen(now time.Time) backend.Party {
	p := g.party
	p.Age = now.Sub(g.since)
	return p
}
