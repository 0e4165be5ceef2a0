package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

const pageSize = 1000 // keys in a request of List

// Inspect implements backend.Inspector, in two round trips. The second one asks for the
// time that is left of the holder's lease.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	var i backend.Info
	err := b.do(ctx, func(ctx context.Context) error {
		r, err := b.client.Get(ctx, b.folder(key), clientv3.WithPrefix())
		if err != nil {
			return b.readError(ctx, err)
		}
		i, err = b.info(ctx, key, r.Kvs, map[int64]time.Duration{})
		return err
	})
	return i, err
}

// info returns the state of a lock from the keys of its folder. left is a cache.
func (b *Backend) info(ctx context.Context, name string, kvs []*mvccpb.KeyValue, left map[int64]time.Duration) (backend.Info, error) {
	i, q := backend.Info{Name: name}, newQueue(b.folder(name), kvs)
	if len(kvs) == 0 {
		return i, nil
	}
	h := b.holder(q.folder, q.keys[0])
	var err error
	h.Left, err = b.timeLeft(ctx, q.keys[0].Lease, left)
	i.Holder = &h
	for _, kv := range q.keys[1:] {
		i.Waiters = append(i.Waiters, contender(q.folder, kv))
	}
	return i, err
}

// timeLeft returns how long a lease lasts without a keep-alive.
func (b *Backend) timeLeft(ctx context.Context, lease int64, cache map[int64]time.Duration) (time.Duration, error) {
	if d, ok := cache[lease]; ok || lease == 0 {
		return d, nil
	}
	r, err := b.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		cache[lease] = 0
	case err != nil:
		return 0, b.readError(ctx, err)
	default:
		cache[lease] = time.Duration(max(r.TTL, 0)) * time.Second
	}
	return cache[lease], nil
}

// List implements backend.Lister. It reads the keys page by page, in the revision of
// the first page.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	left := map[int64]time.Duration{}
	var name string
	var folder []*mvccpb.KeyValue // the keys of name so far
	flush := func() (more bool, err error) {
		if len(folder) == 0 {
			return true, nil
		}
		i, err := b.info(ctx, name, folder, left)
		folder = nil
		return err == nil && yield(i), err
	}
	opts := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(b.root)), clientv3.WithLimit(pageSize)}
	for from := b.root; ; {
		var r *clientv3.GetResponse
		err := b.do(ctx, func(ctx context.Context) (err error) {
			if r, err = b.client.Get(ctx, from, opts...); err != nil {
				return b.readError(ctx, err)
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
				continue // a tombstone, or the key of another program
			}
			if of != name {
				if more, err := flush(); err != nil || !more {
					return err
				}
				name = of
			}
			folder = append(folder, kv)
		}
		if !r.More {
			_, err := flush()
			return err
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// Break implements backend.Breaker: it deletes the first key of the folder.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	var removed *backend.Holder
	folder := b.folder(key)
	err := b.do(ctx, func(ctx context.Context) error {
		for {
			r, err := b.client.Get(ctx, folder, clientv3.WithFirstCreate()...)
			if err != nil {
				return b.readError(ctx, err)
			}
			if len(r.Kvs) == 0 {
				return nil
			}
			first := r.Kvs[0]
			h := b.holder(folder, first)
			if owner != "" && owner != h.Owner {
				return &backend.LockedError{Holder: h}
			}
			// If the key was deleted meanwhile, do not break the next holder.
			t, err := b.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(string(first.Key)), "=", first.ModRevision)).
				Then(clientv3.OpDelete(string(first.Key))).Commit()
			if err != nil {
				return b.writeError(ctx, err)
			}
			if t.Succeeded {
				removed = &h
				return nil
			}
		}
	})
	return removed, err
}
