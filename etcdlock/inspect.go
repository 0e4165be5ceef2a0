package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

const pageSize = 1000 // keys in a request of List

// Inspect implements backend.Inspector, in two round trips. The second one asks for the
// times that are left of the holders' leases.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	var i backend.Info
	err := b.svc.do(ctx, func(ctx context.Context) error {
		r, err := b.svc.client.Get(ctx, b.svc.folder(key), clientv3.WithPrefix())
		if err != nil {
			return b.svc.readError(ctx, err)
		}
		i, err = b.info(ctx, key, r.Kvs, leaseTimes{})
		return err
	})
	return i, err
}

// info returns the state of a lock from the keys of its folder. left is a cache.
func (b *Backend) info(ctx context.Context, name string, kvs []*mvccpb.KeyValue, left leaseTimes) (backend.Info, error) {
	i, q := backend.Info{Name: name}, newQueue(b.svc.folder(name), kvs, false)
	if len(kvs) == 0 {
		return i, nil
	}
	leases := map[string]clientv3.LeaseID{}
	for _, kv := range kvs {
		leases[string(kv.Key)] = clientv3.LeaseID(kv.Lease)
	}
	held := q.Places[:q.Holders()]
	if err := b.readTimesLeft(ctx, held, leases, left); err != nil {
		return i, err
	}
	for _, p := range held {
		h := p.Holder()
		h.Left = left[leases[p.ID]]
		i.Others = append(i.Others, h)
	}
	i.Holder, i.Others = &i.Others[0], i.Others[1:]
	for _, p := range q.Places[len(held):] {
		i.Waiters = append(i.Waiters, p.Contender)
	}
	return i, nil
}

// leaseTimes are for how long leases last without a keep-alive.
type leaseTimes map[clientv3.LeaseID]time.Duration

// readTimesLeft adds the leases of holders, which it asks for at once.
func (b *Backend) readTimesLeft(
	ctx context.Context, held []places.Place, leases map[string]clientv3.LeaseID, left leaseTimes,
) error {
	var unknown []clientv3.LeaseID
	for _, p := range held {
		lease := leases[p.ID]
		if _, known := left[lease]; !known && lease != clientv3.NoLease {
			left[lease] = 0
			unknown = append(unknown, lease)
		}
	}
	times, errs := make([]time.Duration, len(unknown)), make([]error, len(unknown))
	var all sync.WaitGroup
	for i, id := range unknown {
		all.Go(func() {
			r, err := b.svc.client.TimeToLive(ctx, id)
			if err == nil {
				times[i] = time.Duration(max(r.TTL, 0)) * time.Second
			} else if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				errs[i] = b.svc.readError(ctx, err)
			}
		})
	}
	all.Wait()
	for i, id := range unknown {
		if errs[i] != nil {
			return errs[i]
		}
		left[id] = times[i]
	}
	return nil
}

// List implements backend.Lister. It reads the keys page by page, in the revision of
// the first page.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	left := leaseTimes{}
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
	opts := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(b.svc.root)), clientv3.WithLimit(pageSize)}
	for from := b.svc.root; ; {
		var r *clientv3.GetResponse
		err := b.svc.do(ctx, func(ctx context.Context) (err error) {
			if r, err = b.svc.client.Get(ctx, from, opts...); err != nil {
				return b.svc.readError(ctx, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if from == b.svc.root {
			opts = append(opts, clientv3.WithRev(r.Header.Revision))
		}
		for _, kv := range r.Kvs {
			of, _, ok := splitKey(b.svc.root, string(kv.Key))
			if !ok {
				continue // a marker, or the key of another program
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
