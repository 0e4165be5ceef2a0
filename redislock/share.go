package redislock

import (
	"context"
	"slices"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// keysOf returns the keys of a script about an attempt that reads or writes its tombstone.
func (b *Backend) keysOf(req backend.Request) []string {
	k := b.proc.Keys(req.Key)
	keys := []string{k.Lock, k.Queue, k.Fence, k.Tombstone(req.Owner)}
	if req.Share.Exclusive() {
		return keys
	}
	return append(keys, k.Holders()...)
}

// capacityError returns the error of a reply that shares of another capacity hold the key or
// wait for it.
func capacityError(asked backend.Share, r protocol.Reply) error {
	return backend.CapacityError(asked, backend.Share{Weight: 1, Capacity: int(r.Num(0))})
}

// Slots implements backend.SlotHolder.
func (g *grant) Slots() []int { return slices.Clone(g.slots) }

// Downgrade is one round trip.
func (g *grant) Downgrade(ctx context.Context) error {
	b, k := g.a.b, g.a.keys
	g.a.shared.Store(true)
	keys := slices.Concat(k.Script(), k.Holders())
	r, replicas, err := b.eval(ctx, downgradeScript, keys, b.proc.ChannelPrefix(), g.a.req.Owner)
	if err != nil {
		return err
	}
	switch r.Status {
	case protocol.Yes:
	case protocol.OtherCapacity:
		return capacityError(backend.Reader, r)
	default:
		g.a.sweep()
		return g.lostError("is")
	}
	b.follow(k, r.Num(0))
	if replicas < b.opt.replicas {
		return backend.Uncertain(b.tooFewReplicas(replicas)) // the next call completes it
	}
	return nil
}
