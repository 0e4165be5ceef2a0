package etcdlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// attempt is one that may have a key at the servers.
type attempt struct {
	b      *Backend
	req    backend.Request
	folder string

	// under Backend.mu
	s     *session // the lease of its key; it has joined it
	first *session // that under which the key was made, and whose id is in its name
	key   string   // empty while nothing was sent
	// dirty: a request to acquire had no answer, so it may be executed later
	dirty bool
}

func (b *Backend) newAttempt(req backend.Request) *attempt {
	return &attempt{b: b, req: req, folder: b.folder(req.Key)}
}

// begin notes that a request is about to be sent under a lease. What the attempt
// had under a former one is gone with it.
func (a *attempt) begin(s *session) {
	s.join()
	b := a.b
	b.mu.Lock()
	former := []*session{a.s}
	if same := b.attempts[a.req.Owner]; same != nil && same != a { // sent twice
		a.dirty = a.dirty || same.dirty
		former = append(former, same.s)
		same.s = nil
	}
	a.s, a.first, a.key = s, s, a.folder+place(s.id, a.req.Owner)
	b.attempts[a.req.Owner] = a
	b.mu.Unlock()
	for _, f := range former {
		if f != nil {
			f.leave()
		}
	}
}

func (a *attempt) unanswered() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.dirty = true
}

// forget is called when nothing of the attempt is left at the servers.
func (a *attempt) forget() {
	b := a.b
	b.mu.Lock()
	s := a.s
	known := b.attempts[a.req.Owner] == a
	if known {
		delete(b.attempts, a.req.Owner)
		a.s, a.key, a.dirty = nil, "", false
	}
	b.mu.Unlock()
	if known && s != nil {
		s.leave()
	}
}

// Abandon makes sure that nothing remains of an attempt. If one of its requests
// had no answer, a tombstone beside the key makes it fail should it come later.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	return b.do(ctx, func(ctx context.Context) error {
		b.mu.Lock()
		a := b.attempts[req.Owner]
		var s *session
		var key string
		var dirty bool
		if a != nil {
			s, key, dirty = a.first, a.key, a.dirty
		}
		b.mu.Unlock()
		if a == nil {
			return b.abandonUnknown(ctx, req)
		}
		if _, err := b.remove(ctx, s, key, req.Owner, dirty); err != nil {
			return err
		}
		a.forget()
		return nil
	})
}

// remove deletes the key of an attempt, and tells whether it was there. With dirty
// it leaves a tombstone, under the same lease, that refuses what may come later.
func (b *Backend) remove(ctx context.Context, s *session, key, owner string, dirty bool) (bool, error) {
	r, err := b.client.Txn(ctx).Then(b.removal(s, key, owner, dirty)...).Commit()
	switch {
	case dirty && errors.Is(err, rpctypes.ErrNoSpace):
		// A deletion needs no space, so nobody waits for it; a late request needs some too.
		d, err := b.client.Delete(ctx, key)
		if err != nil {
			return false, b.uncertain(ctx, err)
		}
		b.removeAgain(s, key, owner)
		return d.Deleted > 0, nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		// Without the lease no late request can succeed; the key went with it, if it
		// was not moved to another.
		s.vanished()
		d, err := b.client.Delete(ctx, key)
		if err != nil {
			return false, b.uncertain(ctx, err)
		}
		return d.Deleted > 0, nil
	case err != nil:
		return false, b.uncertain(ctx, err)
	case dirty:
		s.bear(b.tombstone(s.id, owner))
	}
	return r.Responses[0].GetResponseDeleteRange().Deleted > 0, nil
}

func (b *Backend) removal(s *session, key, owner string, dirty bool) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpDelete(key)}
	if dirty {
		ops = append(ops, clientv3.OpPut(b.tombstone(s.id, owner), "", clientv3.WithLease(s.id)))
	}
	return ops
}

// removeAgain leaves the tombstone of a key that is deleted already once the servers
// have space for it, and with it deletes what a late request has put meanwhile.
func (b *Backend) removeAgain(s *session, key, owner string) {
	if !b.enter() {
		return // Close revokes the lease
	}
	go func() {
		defer b.wg.Done()
		for wait := 50 * time.Millisecond; pause(b.life, wait); wait = min(2*wait, time.Second) {
			ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(b.life), b.opt.open)
			_, err := b.client.Txn(ctx).Then(b.removal(s, key, owner, true)...).Commit()
			cancel()
			if err == nil {
				s.bear(b.tombstone(s.id, owner))
			}
			if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return
			}
		}
	}()
}

// abandonUnknown is for an attempt that was abandoned or released already, or was
// made by another backend: it has no request on its way that could be refused.
func (b *Backend) abandonUnknown(ctx context.Context, req backend.Request) error {
	r, err := b.client.Get(ctx, b.folder(req.Key), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return b.failure(ctx, err)
	}
	for _, kv := range r.Kvs {
		if strings.HasSuffix(string(kv.Key), "-"+req.Owner) {
			if _, err := b.client.Delete(ctx, string(kv.Key)); err != nil {
				return b.uncertain(ctx, err)
			}
		}
	}
	return nil
}
