package redislock

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
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.renew(ctx, ttl, "0")
}

// Keep implements backend.Keeper.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	return g.renew(ctx, d, "1")
}

func (g *grant) renew(ctx context.Context, ttl time.Duration, exactly string) error {
	b := g.a.b
	names, args := g.renewal(ttl, exactly)
	var r reply
	var err error
	got := b.opt.replicas
	if b.opt.replicas > 0 {
		r, got, err = b.evalWait(ctx, renewScript, names, args...)
	} else {
		r, err = b.eval(ctx, renewScript, names, args...)
	}
	if err != nil {
		return err
	}
	return g.renewed(r, got, ttl)
}

// renewal is the keys and arguments of the script.
func (g *grant) renewal(ttl time.Duration, exactly string) (names []string, args []any) {
	b, k := g.a.b, g.a.keys
	return []string{k.lock, k.queue, k.fence}, []any{b.channelPrefix(), g.a.req.Owner, millis(ttl), exactly}
}

// renewed takes in the script's answer, which so many replicas have. A batch for which
// nobody waits any more may be answered after a later renewal, and moves nothing.
func (g *grant) renewed(r reply, got int, ttl time.Duration) error {
	b := g.a.b
	if r.status != yes {
		g.a.gone()
		return fmt.Errorf("%w: redis key %.200q is not ours any more", backend.ErrLost, g.a.keys.lock)
	}
	if got < b.opt.replicas {
		// it was extended, though not as safely as asked for
		return backend.Uncertain(fmt.Errorf("%w: %d of %d acknowledged the renewal within %v", errReplicas, got, b.opt.replicas, b.opt.replicaTimeout))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !r.sent.Before(g.sent) {
		g.sent, g.until = r.sent, r.sent.Add(ttl)
	}
	return nil
}

// Release is one round trip. The attempt is known until it is answered: a push that a
// poll has overtaken would be returned to the sender else, and this release be told
// that the key is not ours.
func (g *grant) Release(ctx context.Context) error {
	defer g.a.drop() // whether it was acknowledged or not: there is nothing more to be told
	r, err := g.a.release(ctx)
	if err != nil {
		return err
	}
	if r.status != yes {
		return fmt.Errorf("%w: redis key %.200q was not ours any more", backend.ErrLost, g.a.keys.lock)
	}
	return nil
}
