package pglock

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// Slots implements backend.SlotHolder.
func (g *grant) Slots() []int { return slices.Clone(g.slots) }

// Downgrade is one round trip: the holder moves to a row of its own, and end.sql admits the readers
// at the head of the queue. The statement that moves it is repeated for its result.
func (g *grant) Downgrade(ctx context.Context) error {
	b, key, owner := g.a.b, g.a.key, g.a.req.Owner
	var status, capacity int
	var handedOver bool
	down := do(b.sql.downgrade, key, owner)
	_, _, err := query(ctx, b, 0, func(r pgx.CollectableRow) (none struct{}, err error) {
		return none, r.Scan(&status, &capacity, &handedOver, nil)
	}, do(b.sql.lock, key), down, do(b.sql.endAny, key, "", "admit", "", "", false), down)
	g.mu.Lock()
	g.shared = g.shared || err == nil && status == granted
	g.doubtful = !g.shared && (g.doubtful || backend.OutcomeUnknown(err)) // an earlier request may still be executed
	g.mu.Unlock()
	switch {
	case err != nil:
		return err
	case status == wrongCapacity:
		return backend.CapacityError(backend.Reader, backend.Share{Weight: 1, Capacity: capacity})
	case status != granted:
		g.a.unregister()
		return b.lost(key)
	case handedOver:
		b.watch(key, nil)
	}
	return nil
}
