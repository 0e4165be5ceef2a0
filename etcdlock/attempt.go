package etcdlock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// tombstoneTTL is longer than TCP tries to deliver data on a dead connection.
const tombstoneTTL = 15 * time.Minute

// attempt is a request to acquire that may have a key at the servers.
type attempt struct {
	b      *Backend
	req    backend.Request
	folder string

	unanswered atomic.Bool // a request to acquire had no answer: the servers may execute it later
	answered   time.Time   // Acquire: when the servers last answered

	// guarded by Backend.mu
	s   *session // the lease of the key; the attempt is one of its users
	key string   // empty before the first request was sent
}

func (b *Backend) newAttempt(req backend.Request) *attempt {
	return &attempt{b: b, req: req, folder: b.folder(req.Key)}
}

// begin registers the attempt before it sends a request under the lease of s. If it had
// a key under another lease, that was deleted with the lease.
func (a *attempt) begin(s *session) {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if same := b.attempts[a.req.Owner]; same != nil && same != a { // the caller sent the request twice
		a.unanswered.Store(a.unanswered.Load() || same.unanswered.Load())
		same.leaveLocked()
	}
	a.leaveLocked()
	s.users++
	a.s, a.key = s, a.folder+place{a.req.Share, s.id, a.req.Owner}.String()
	b.attempts[a.req.Owner] = a
}

func (a *attempt) leaveLocked() {
	if a.s != nil {
		a.s.leaveLocked()
		a.s = nil
	}
}

// forget unregisters an attempt of which nothing remains at the servers.
func (a *attempt) forget() {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attempts[a.req.Owner] == a {
		delete(b.attempts, a.req.Owner)
		a.leaveLocked()
		a.key = ""
		a.unanswered.Store(false)
	}
}

// Abandon makes sure that nothing remains of an attempt, in one round trip. If one of
// its requests had no answer, a tombstone refuses that request.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	return b.do(ctx, func(ctx context.Context) error {
		b.mu.Lock()
		a := b.attempts[req.Owner]
		if a == nil {
			b.mu.Unlock()
			return b.abandonUnknown(ctx, req)
		}
		s, key := a.s, a.key
		b.mu.Unlock()
		if _, err := b.remove(ctx, s, key, req.Owner, a.unanswered.Load()); err != nil {
			return err
		}
		a.forget()
		return nil
	})
}

// abandonUnknown deletes the keys of an attempt without unanswered requests here: it
// was abandoned or released already, or another backend made it.
func (b *Backend) abandonUnknown(ctx context.Context, req backend.Request) error {
	r, err := b.client.Get(ctx, b.folder(req.Key), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return b.readError(ctx, err)
	}
	for _, kv := range r.Kvs {
		if strings.HasSuffix(string(kv.Key), "-"+req.Owner) {
			if _, err := b.removeKey(ctx, string(kv.Key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes the key of an attempt and returns whether it existed. With tombstone it
// also puts one under the same lease, which refuses requests that are executed later.
func (b *Backend) remove(ctx context.Context, s *session, key, owner string, tombstone bool) (existed bool, err error) {
	if !tombstone {
		return b.removeKey(ctx, key)
	}
	existed, err = b.removeWithTombstone(ctx, s, key, owner)
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		if err != nil {
			err = b.writeError(ctx, err)
		}
		return existed, err
	}
	// A deletion needs no space, and waiters must not wait for the tombstone. A late
	// request is refused too while there is no space.
	if existed, err = b.removeKey(ctx, key); err == nil {
		b.retryInBackground(func(ctx context.Context) error {
			_, err := b.removeWithTombstone(ctx, s, key, owner)
			return err
		})
	}
	return existed, err
}

func (b *Backend) removeKey(ctx context.Context, key string) (existed bool, err error) {
	r, err := b.client.Delete(ctx, key)
	if err != nil {
		return false, b.writeError(ctx, err)
	}
	return r.Deleted > 0, nil
}

// removeWithTombstone is one transaction. If the lease has ended, it succeeds: the
// servers have deleted the key with the lease and refuse late requests under it.
func (b *Backend) removeWithTombstone(ctx context.Context, s *session, key, owner string) (existed bool, err error) {
	tombstone := b.tombstone(s.id, owner)
	r, err := b.client.Txn(ctx).Then(
		clientv3.OpDelete(key),
		clientv3.OpPut(tombstone, "", clientv3.WithLease(s.id)),
	).Commit()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.endAsGone()
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.removeTombstoneLater(tombstone)
	return r.Responses[0].GetResponseDeleteRange().Deleted > 0, nil
}

// removeTombstoneLater deletes a tombstone after tombstoneTTL. It may have ended with
// its lease before.
func (b *Backend) removeTombstoneLater(key string) {
	time.AfterFunc(tombstoneTTL, func() {
		b.retryInBackground(func(ctx context.Context) error {
			_, err := b.removeKey(ctx, key)
			return err
		})
	})
}
