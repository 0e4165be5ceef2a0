package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

var (
	_ backend.Keeper     = (*grant)(nil)
	_ backend.Downgrader = (*grant)(nil)
	_ backend.SlotHolder = (*grant)(nil)
)

type grant struct {
	a     *attempt
	token uint64
	slots []int

	mu       sync.Mutex // guards the fields below
	until    time.Time
	sent     time.Time // when the renewal that set until was sent
	shared   bool      // the holder has a row of its own
	doubtful bool      // so it may be: a downgrade had no reply
}

func (g *grant) Token() uint64 { return g.token }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// Renew is one round trip.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error { return g.renew(ctx, ttl, false) }

// Keep implements backend.Keeper.
func (g *grant) Keep(ctx context.Context, d time.Duration) error { return g.renew(ctx, d, true) }

func (g *grant) renew(ctx context.Context, ttl time.Duration, mayShorten bool) error {
	b := g.a.b
	shared, doubtful := g.isShared()
	sent, rows, err := g.sendRenewal(ctx, ttl, mayShorten, shared)
	if err == nil && rows == 0 && doubtful {
		sent, rows, err = g.sendRenewal(ctx, ttl, mayShorten, true)
	}
	if err != nil {
		return err
	}
	if rows == 0 {
		g.a.unregister()
		return b.lost(g.a.key)
	}
	g.renewed(sent, ttl)
	return nil
}

func (g *grant) sendRenewal(ctx context.Context, ttl time.Duration, mayShorten, shared bool) (sent time.Time, rows int, err error) {
	b, key, owner := g.a.b, g.a.key, g.a.req.Owner
	renewal := do(b.sql.renew, key, owner, micro(ttl), mayShorten)
	switch {
	case shared && mayShorten:
		renewal = do(b.sql.keepShare, key, owner, micro(ttl))
	case shared:
		renewal = do(b.sql.renewShare, key, owner, micro(ttl))
	}
	if mayShorten { // and notifies the first waiter
		return b.exec(ctx, do(b.sql.lock, key), renewal)
	}
	return b.exec(ctx, renewal)
}

func (g *grant) isShared() (shared, doubtful bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shared, g.doubtful
}

// renewed moves until after a renewal. The reply to a batch may arrive after a later
// renewal, and then moves nothing.
func (g *grant) renewed(sent time.Time, ttl time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !sent.Before(g.sent) {
		g.sent, g.until = sent, sent.Add(ttl)
	}
}

// Release is one round trip.
func (g *grant) Release(ctx context.Context) error {
	b := g.a.b
	b.mu.Lock()
	g.a.ended = true
	b.mu.Unlock()
	shared, doubtful := g.isShared()
	ended, err := b.release(ctx, g.a.key, g.a.req.Owner, g.a.unanswered, g.a.shares || shared || doubtful)
	g.a.unregister() // also after an error: a grant that is pushed now is to be released
	if err == nil && ended == nil {
		err = b.lost(g.a.key)
	}
	return err
}
