package pglock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

var _ backend.Keeper = (*grant)(nil)

type grant struct {
	a     *attempt
	token uint64

	mu    sync.Mutex
	until time.Time
	sent  time.Time // the request that until is of
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

func (g *grant) renew(ctx context.Context, ttl time.Duration, exactly bool) error {
	b := g.a.b
	sent, rows, err := b.count(ctx, b.sql.renew, g.a.key, g.a.req.Owner, micro(ttl), exactly)
	if err != nil {
		return err
	}
	if rows == 0 {
		g.a.drop()
		return g.lost()
	}
	g.renewed(sent, ttl)
	return nil
}

// renewed takes in what a request, sent at sent, has renewed. A batch for which nobody
// waits any more may be answered after a later renewal, and moves nothing.
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
	rows, err := b.exec(ctx, b.sql.release, g.a.key, g.a.req.Owner, g.a.dirty)
	g.a.drop() // whatever became of it: a grant that is pushed now is not wanted
	if err != nil {
		return err
	}
	if rows == 0 {
		return g.lost()
	}
	return nil
}

func (g *grant) lost() error {
	return fmt.Errorf("%w: the row %.200q of table %s is not ours any more", backend.ErrLost, g.a.key, g.a.b.sql.table)
}
