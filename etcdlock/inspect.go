package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

const pageSize = 1000 // keys to a request of List

// Inspect tells who holds and who waits for a key, in two round trips: the second
// asks how long the holder's lease lasts.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	var i backend.Info
	err := b.do(ctx, func(ctx context.Context) error {
		r, err := b.client.Get(ctx, b.folder(key), clientv3.WithPrefix())
		if err != nil {
			return b.failure(ctx, err)
		}
		i, err = b.info(ctx, key, r.Kvs, map[int64]time.Duration{})
		return err
	})
	return i, err
}

// info is what the keys of a folder say.
func (b *Backend) info(ctx context.Context, name string, kvs []*mvccpb.KeyValue, left map[int64]time.Duration) (backend.Info, error) {
	i := backend.Info{Name: name}
	if len(kvs) == 0 {
		return i, nil
	}
	slices.SortFunc(kvs, func(a, c *mvccpb.KeyValue) int {
		return byRevision(member{revision: a.CreateRevision}, c.CreateRevision)
	})
	folder := b.folder(name)
	h := b.holder(folder, kvs[0])
	var err error
	h.Left, err = b.left(ctx, kvs[0].Lease, left)
	i.Holder = &h
	for _, kv := range kvs[1:] {
		i.Waiters = append(i.Waiters, party(folder, kv))
	}
	return i, err
}

// left is how long a lease lasts if it is not kept alive. known saves asking twice.
func (b *Backend) left(ctx context.Context, lease int64, known map[int64]time.Duration) (time.Duration, error) {
	if d, ok := known[lease]; ok || lease == 0 {
		return d, nil
	}
	r, err := b.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		known[lease] = 0
	case err != nil:
		return 0, b.failure(ctx, err)
	default:
		known[lease] = time.Duration(max(r.TTL, 0)) * time.Second
	}
	return known[lease], nil
}

// List lists the held keys of the prefix, page by page, as they were when it began.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	end := clientv3.GetPrefixRangeEnd(b.root)
	left := map[int64]time.Duration{}
	var name string
	var group []*mvccpb.KeyValue
	flush := func() (bool, error) {
		if len(group) == 0 {
			return true, nil
		}
		i, err := b.info(ctx, name, group, left)
		group = nil
		return err == nil && yield(i), err
	}
	opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageSize)}
	for from := b.root; ; {
		var r *clientv3.GetResponse
		err := b.do(ctx, func(ctx context.Context) (err error) {
			if r, err = b.client.Get(ctx, from, opts...); err != nil {
				return b.failure(ctx, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if from == b.root {
			opts = append(opts, clientv3.WithRev(r.Header.Revision))
		}
		for _, kv := range r.Kvs {
			of, _, ok := splitKey(b.root, string(kv.Key))
			if !ok {
				continue // a tombstone, or another program's
			}
			if of != name {
				if more, err := flush(); err != nil || !more {
					return err
				}
				name = of
			}
			group = append(group, kv)
		}
		if !r.More {
			_, err := flush()
			return err
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// Break deletes the first key of the folder, whoever's it is.
func (b *Backend) Break(ctx context.Context, key string) (*backend.Holder, error) {
	var broken *backend.Holder
	folder := b.folder(key)
	err := b.do(ctx, func(ctx context.Context) error {
		for {
			r, err := b.client.Get(ctx, folder, clientv3.WithFirstCreate()...)
			if err != nil {
				return b.failure(ctx, err)
			}
			if len(r.Kvs) == 0 {
				return nil
			}
			head := r.Kvs[0]
			h := b.holder(folder, head)
			// not whoever came after it meanwhile
			d, err := b.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(string(head.Key)), "=", head.ModRevision)).
				Then(clientv3.OpDelete(string(head.Key))).Commit()
			if err != nil {
				return b.uncertain(ctx, err)
			}
			if d.Succeeded {
				broken = &h
				return nil
			}
		}
	})
	return broken, err
}
