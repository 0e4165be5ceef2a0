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
	b          *Backend
	req        backend.Request
	token      uint64
	unanswered bool // a request of the attempt had no answer: the server may execute it later
	contended  bool // others waited for the key when it was granted

	mu    sync.Mutex // guards the fields below
	until time.Time
	sent  time.Time // of the renewal that until comes from
}

func (g *grant) Token() uint64 { return g.token }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// Renew executes one statement.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.setEnd(ctx, g.b.renew(g.req, ttl), ttl)
}

// Keep implements backend.Keeper by one statement.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	err := g.setEnd(ctx, g.b.keep(g.req, d), d)
	if err == nil {
		g.b.notifier.releaseName(g.req.Owner) // waiters know of a later end
	}
	return err
}

// setEnd executes a statement that sets the end of the lease to d from now.
func (g *grant) setEnd(ctx context.Context, q string, d time.Duration) error {
	sent := time.Now()
	n, err := g.b.exec(ctx, q)
	if err != nil {
		return err
	}
	if n == 0 {
		g.b.notifier.releaseName(g.req.Owner) // there is no release
		return g.lost()
	}
	g.renewed(sent, d)
	return nil
}

// renewed records a renewal that was sent at sent. A batch may be answered after a later
// renewal was, and then changes nothing.
func (g *grant) renewed(sent time.Time, ttl time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !sent.Before(g.sent) {
		g.sent, g.until = sent, sent.Add(ttl)
	}
}

// Release sends one packet, or two if the first waiter came after the grant.
func (g *grant) Release(ctx context.Context) error {
	held, err := g.b.release(ctx, g.req, g.contended, g.unanswered)
	if err == nil && !held {
		err = g.lost()
	}
	return err
}

func (g *grant) lost() error {
	return fmt.Errorf("%w: row %.200q of table %s has another owner or has expired", backend.ErrLost, g.b.key(g.req.Key), g.b.table)
}
