package etcdlock

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// Break implements backend.Breaker: it deletes the keys of the holders.
func (b *Backend) Break(ctx context.Context, key, owner string) (removed *backend.Holder, err error) {
	err = b.do(ctx, func(ctx context.Context) error {
		for {
			r, err := b.client.Get(ctx, b.folder(key), clientv3.WithPrefix())
			if err != nil {
				return b.readError(ctx, err)
			}
			q := newQueue(b.folder(key), r.Kvs)
			if len(q.keys) == 0 {
				return nil
			}
			held := q.holders()
			if owner != "" {
				i := slices.IndexFunc(held, func(c *contender) bool { return c.owner == owner })
				if i < 0 {
					return &backend.LockedError{Holder: held[0].holder()}
				}
				held = held[i : i+1]
			}
			if removed, err = b.removeHolders(ctx, held); err != nil || removed != nil {
				return err
			}
		}
	})
	return removed, err
}

// removeHolders deletes the keys of holders, and returns the first one that it has deleted,
// nil if all have ended meanwhile: their keys may be those of waiters now.
func (b *Backend) removeHolders(ctx context.Context, held []*contender) (removed *backend.Holder, err error) {
	for part := range slices.Chunk(held, maxRecorded) {
		var deletions []clientv3.Op
		for _, c := range part {
			same := clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.revision)
			deletions = append(deletions, clientv3.OpTxn([]clientv3.Cmp{same}, []clientv3.Op{clientv3.OpDelete(c.key)}, nil))
		}
		r, err := b.client.Txn(ctx).Then(deletions...).Commit()
		if err != nil {
			return nil, b.writeError(ctx, err)
		}
		for i, c := range part {
			if removed == nil && r.Responses[i].GetResponseTxn().Succeeded {
				h := c.holder()
				removed = &h
			}
		}
	}
	return removed, nil
}
