package etcdlock

import (
	"context"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
)

// Backend is the etcd driver. Make one with New or lock.Open.
type Backend struct {
	*places.Backend
	svc *service
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Waiter        = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.ChangeWatcher = (*Backend)(nil)
	_ backend.Lister        = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// Client returns the client of etcd, for requests of the caller.
func (b *Backend) Client() *clientv3.Client { return b.svc.client }

// Leases returns the leases of this backend, one for each TTL in use. If one is
// revoked, all grants under it are lost.
func (b *Backend) Leases() []clientv3.LeaseID {
	b.svc.mu.Lock()
	defer b.svc.mu.Unlock()
	var ids []clientv3.LeaseID
	for id, ss := range b.svc.sessions {
		if ss.Err() == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// OwnerCmp returns a condition for a transaction of the caller on Client. It is true
// only while the grant with that owner (lock.Lease.Owner) and token holds the lock, or its
// share of it:
//
//	b.Client().Txn(ctx).If(b.OwnerCmp(l.Name(), l.Owner(), token)).Then(...)
//
// etcd checks it together with the rest of the transaction, so even a holder that was
// stopped cannot write too late. It is false for a grant that this backend does not
// know. With lock.WithLocalHandOff use the owner and the token of Lease.BackendHold: the
// condition guards the grant, which the client may have passed on to another lease.
func (b *Backend) OwnerCmp(name, owner string, token uint64) clientv3.Cmp {
	key := b.svc.folder(name)
	if p, ok := b.Place(owner); ok && len(p.ID) > len(key) && p.ID[:len(key)] == key {
		key = p.ID
	} else {
		key += owner // no attempt has this key
	}
	if token == 0 || token > math.MaxInt64 {
		token = math.MaxInt64 // no such revision
	}
	return clientv3.Compare(clientv3.CreateRevision(key), "=", int64(token))
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:       "etcd",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossSession,
		Order:      backend.FIFO,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingFailover,
		PushesLoss: true,
		Shared:     true,
		Permits:    true,
		MinTTL:     b.svc.minTTL,
		MaxTTL:     maxTTL,
		Caveats: []string{
			"A lease lasts whole seconds: a TTL is rounded up, and the servers raise a TTL that is too short for their election timeout.",
			"Lease.Extend beyond the TTL of the lock is refused.",
			"Tokens are revisions: a cluster restored from a snapshot without raising its revision (etcdutl snapshot restore --bump-revision) issues old ones again, and does not know later locks.",
			"When the cluster elects a leader it extends all leases: the key of a crashed holder may stay for one more TTL.",
			"All locks of one TTL share a lease. A process sends one keep-alive every eighth of the TTL, and revokes a lease that it has not used for a minute.",
			"A key that another program deletes is noticed at the next renewal; Break, and the end of the lease, are pushed.",
			"Through etcd's gRPC proxy the answer to a keep-alive may be older than the request, by as long as the proxy waits for its server.",
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
}

// Ping makes one round trip, which a majority of the servers must confirm.
func (b *Backend) Ping(ctx context.Context) error {
	return b.svc.do(ctx, func(ctx context.Context) error {
		if _, err := b.svc.client.Get(ctx, b.svc.root, clientv3.WithCountOnly()); err != nil {
			return b.svc.readError(ctx, err)
		}
		return nil
	})
}

// WatchChanges watches the keys of the holder and the waiters of a lock.
func (b *Backend) WatchChanges(ctx context.Context, key string, changed func()) error {
	return b.svc.do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.svc.life.Context(), cancel)()
		for wait := minPause; ctx.Err() == nil; wait = min(2*wait, time.Second) {
			if b.svc.watchOnce(ctx, b.svc.folder(key), []clientv3.OpOption{clientv3.WithPrefix()}, func(int64) { changed() },
				func(*clientv3.Event) { changed() }) {
				wait = minPause
			}
			call.Sleep(ctx, wait)
		}
		if b.svc.life.Context().Err() != nil {
			return backend.ErrClosed
		}
		return ctx.Err()
	})
}
