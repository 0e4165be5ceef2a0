package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// Slots implements backend.SlotHolder.
func (g *grant) Slots() []int { return slices.Clone(g.slots) }

// Downgrade implements backend.Downgrader. It puts the key of the holder again with another
// value, in one round trip. The key keeps its create revision, so it keeps its position and its
// token, and programs that do not know shares go on to wait for it.
func (g *grant) Downgrade(ctx context.Context) error {
	b := g.a.b
	return b.do(ctx, func(ctx context.Context) error {
		if err := g.ended(); err != nil {
			return err
		}
		err := g.downgrade(ctx)
		if err == nil {
			err, _ = g.s.ended()
		}
		if errors.Is(err, backend.ErrLost) {
			g.lose(err, nil)
		}
		return err
	})
}

func (g *grant) downgrade(ctx context.Context) error {
	b, a := g.a.b, g.a
	if !a.req.Share.Exclusive() {
		return g.verify(ctx)
	}
	r, err := b.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(g.key), "=", g.token)).
		Then(clientv3.OpPut(g.key, valueOf(downgraded, a.req.Metadata), clientv3.WithIgnoreLease())).
		Else(clientv3.OpGet(g.key)).Commit()
	if err != nil {
		return b.writeError(ctx, err)
	}
	if r.Succeeded {
		return nil
	}
	q := newQueue(a.folder, rangeOf(r, 0).GetKvs())
	i, found := q.find(g.key, g.token)
	if !found {
		return g.keyGone()
	}
	if q.keys[i].share == backend.Reader { // by an earlier request
		return nil
	}
	return backend.NotExecuted(fmt.Errorf("etcd: another program has put the key %.200q", g.key))
}
