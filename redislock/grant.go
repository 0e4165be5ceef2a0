package redislock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

var (
	_ backend.Keeper     = (*grant)(nil)
	_ backend.Downgrader = (*grant)(nil)
	_ backend.SlotHolder = (*grant)(nil)
)

type grant struct {
	a     *attempt
	token uint64
	slots []int // of permits

	mu    sync.Mutex // guards the fields below
	until time.Time
	sent  time.Time // when the request was sent that until is counted from
}

func (a *attempt) newGrant(token uint64, until time.Time, slots string) *grant {
	g := &grant{a: a, token: token, until: until, slots: protocol.ParseSlots(slots)}
	for i := len(g.slots); i < a.req.Share.Weight && a.req.Share.Capacity > 0; i++ {
		g.slots = append(g.slots, i) // a client that does not know shares granted it the whole key
	}
	return g
}

func (g *grant) Token() uint64 { return g.token }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// Renew is one round trip.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error { return g.renew(ctx, ttl, "0") }

// Keep implements backend.Keeper.
func (g *grant) Keep(ctx context.Context, d time.Duration) error { return g.renew(ctx, d, "1") }

func (g *grant) renew(ctx context.Context, ttl time.Duration, exactly string) error {
	keys, args := g.renewal(ttl, exactly)
	r, replicas, err := g.a.b.eval(ctx, protocol.Renew, keys, args...)
	if err != nil {
		return err
	}
	return g.renewed(r, replicas, ttl)
}

// renewal returns the keys and arguments of RENEW.
func (g *grant) renewal(ttl time.Duration, exactly string) (keys []string, args []any) {
	keys = g.a.keys.Script()
	if g.a.shared.Load() {
		keys = append(keys, g.a.keys.Holders()...)
	}
	return keys, []any{g.a.b.proc.ChannelPrefix(), g.a.req.Owner, protocol.Millis(ttl), exactly}
}

// renewed handles a reply of RENEW that so many replicas have. The reply of a batch may
// arrive after that of a later renewal; it does not move Until then.
func (g *grant) renewed(r protocol.Reply, replicas int, ttl time.Duration) error {
	if r.Status != protocol.Yes {
		g.a.sweep()
		return g.lostError("is")
	}
	if b := g.a.b; replicas < b.opt.replicas {
		return backend.Uncertain(b.tooFewReplicas(replicas)) // the master extended the lease
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !r.Sent.Before(g.sent) {
		g.sent, g.until = r.Sent, r.Sent.Add(ttl)
	}
	return nil
}

// Release is one round trip. The attempt stays registered until the reply: a
// notification that arrives after a poll found the grant is not an unclaimed grant.
func (g *grant) Release(ctx context.Context) error {
	defer g.a.unregister()
	r, err := g.a.release(ctx)
	if err != nil {
		return err
	}
	if r.Status != protocol.Yes {
		return g.lostError("was")
	}
	return nil
}

func (g *grant) lostError(verb string) error {
	return fmt.Errorf("%w: redis key %.200q %s not ours any more", backend.ErrLost, g.a.keys.Lock, verb)
}
