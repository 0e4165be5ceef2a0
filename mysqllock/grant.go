package mysqllock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

var _ backend.Keeper = (*grant)(nil)

type grant struct {
	b     *Backend
	req   backend.Request
	token uint64
	dirty bool // some request of the attempt had no answer

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

// Renew is one statement.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	n, err := g.b.exec(ctx, g.b.renew(g.req.Key, g.req.Owner, ttl))
	if err != nil {
		return err
	}
	if n == 0 {
		g.ring()
		return g.lost("is")
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

// Keep implements backend.Keeper.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	sent := time.Now()
	n, err := g.b.exec(ctx, g.b.keep(g.req.Key, g.req.Owner, d))
	if err != nil {
		return err
	}
	g.ring() // those who wait know of a later end
	if n == 0 {
		return g.lost("is")
	}
	g.renewed(sent, d)
	return nil
}

// ring: nothing will be released any more, at which those who wait would wake.
func (g *grant) ring() {
	if g.b.bell != nil {
		g.b.bell.ring(g.req.Owner)
	}
}

// Release is one statement.
func (g *grant) Release(ctx context.Context) error {
	n, err := g.b.giveUp(ctx, g.req.Owner, g.b.release(g.req.Key, g.req.Owner, g.dirty))
	if err == nil && n == 0 {
		err = g.lost("was")
	}
	return err
}

func (g *grant) lost(is string) error {
	return fmt.Errorf("%w: row %.200q of table %s %s not ours any more", backend.ErrLost, g.b.key(g.req.Key), g.b.table, is)
}
