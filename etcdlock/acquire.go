package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// placed is an attempt's key at the servers.
type placed struct {
	revision int64 // in which it was created: its place in the queue, and its token
	holder   bool
	before   int64 // keys of others when it was created, if known
}

// TryAcquire makes one attempt, in one round trip once there is a lease. It puts
// the key only into an empty folder, so it overtakes nobody and leaves nothing when
// it is refused.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req)
	var g backend.Grant
	err := b.do(ctx, func(ctx context.Context) error {
		for {
			s, err := b.session(ctx, req.TTL)
			if err != nil {
				return err
			}
			g, err = a.try(ctx, s)
			s.leave()
			if !errors.Is(err, errRequeue) { // else the lease was gone: with a new one
				return err
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (a *attempt) try(ctx context.Context, s *session) (backend.Grant, error) {
	a.begin(s)
	// of a range the comparison must hold for every key, and of none it is true
	empty := clientv3.Compare(clientv3.CreateRevision(a.folder), "=", 0).WithPrefix()
	r, err := a.txn(ctx, s, empty,
		[]clientv3.Op{a.put(s)},
		[]clientv3.Op{clientv3.OpGet(a.key), clientv3.OpGet(a.folder, clientv3.WithFirstCreate()...)})
	if err != nil {
		return nil, err
	}
	if r.Succeeded {
		return a.grant(s, r.Header.Revision), nil
	}
	own, first := kvs(r, 0), kvs(r, 1)
	switch {
	case len(own) > 0 && own[0].CreateRevision == first[0].CreateRevision: // sent twice
		return a.grant(s, own[0].CreateRevision), nil
	case len(own) > 0:
		return nil, backend.Uncertain(errors.New("etcd: this attempt waits in the queue"))
	}
	var refused error = &backend.LockedError{}
	if len(first) > 0 {
		refused = &backend.LockedError{Holder: a.b.holder(a.folder, first[0])}
	} else if !a.dirty {
		refused = a.abandoned()
	}
	if a.dirty {
		return nil, backend.Uncertain(refused) // the one sent before may still be on its way
	}
	a.forget()
	return nil, refused
}

func (a *attempt) abandoned() error {
	return fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
}

func (a *attempt) put(s *session) clientv3.Op {
	return clientv3.OpPut(a.key, a.req.Metadata, clientv3.WithLease(s.id))
}

func kvs(r *clientv3.TxnResponse, i int) []*mvccpb.KeyValue { return ranged(r, i).GetKvs() }

func ranged(r *clientv3.TxnResponse, i int) *etcdserverpb.RangeResponse {
	return r.Responses[i].GetResponseRange()
}

// errRequeue: the attempt has no key, and has not been granted. It begins anew.
var errRequeue = errors.New("etcd: the place in the queue is gone")

// txn sends a request to acquire, which a tombstone refuses. It is sent again if the
// connection breaks, for the one before may have been dead for long, and for as long
// as opening may take while the servers are without a leader or not there; whichever
// of them is executed, the attempt has one key.
func (a *attempt) txn(ctx context.Context, s *session, cond clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	const resends, longest = 3, 250 * time.Millisecond
	b := a.b
	var over time.Time // of the patience with servers that say that they cannot
	alive := clientv3.Compare(clientv3.CreateRevision(b.tombstone(s.id, a.req.Owner)), "=", 0)
	for n, wait := 0, 20*time.Millisecond; ; wait = min(2*wait, longest) {
		r, err := b.client.Txn(ctx).If(cond, alive).Then(then...).Else(otherwise...).Commit()
		if err == nil {
			return r, nil
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			// Without the lease nothing that was sent before is left, or can come later.
			s.vanished()
			a.forget()
			return nil, errRequeue
		}
		again := false
		switch {
		case b.life.Err() != nil:
		case passing(err):
			if over.IsZero() { // from now on: one that passed it on to a leader that died says so late
				over = time.Now().Add(b.opt.open)
			}
			again = time.Now().Before(over)
		case broken(err):
			n++
			again = n <= resends
		}
		if !refused(err) {
			a.unanswered()
		}
		if again && pause(ctx, wait) {
			continue
		}
		err = b.uncertain(ctx, err)
		if !a.dirty {
			a.forget()
		} else if !errors.Is(err, backend.ErrUncertain) {
			err = backend.Uncertain(err) // of one that was sent before
		}
		return nil, err
	}
}

// enqueue creates the attempt's key, in one round trip. What the transaction reads
// before it puts tells whether the key is the first.
func (a *attempt) enqueue(ctx context.Context, s *session) (placed, error) {
	a.begin(s)
	r, err := a.txn(ctx, s, clientv3.Compare(clientv3.CreateRevision(a.key), "=", 0),
		[]clientv3.Op{clientv3.OpGet(a.folder, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()), a.put(s)},
		[]clientv3.Op{clientv3.OpGet(a.key, clientv3.WithKeysOnly()), clientv3.OpGet(a.folder, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...)})
	if err != nil {
		return placed{}, err
	}
	if r.Succeeded {
		n := ranged(r, 0).GetCount()
		return placed{revision: r.Header.Revision, holder: n == 0, before: n}, nil
	}
	own, first := kvs(r, 0), kvs(r, 1)
	if len(own) == 0 {
		return placed{}, a.abandoned()
	}
	return placed{
		revision: own[0].CreateRevision, holder: own[0].CreateRevision == first[0].CreateRevision,
		before: ranged(r, 1).GetCount(),
	}, nil
}

// Acquire takes the key, waiting in the queue for its turn.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req)
	var g backend.Grant
	err := b.do(ctx, func(ctx context.Context) (err error) {
		g, err = a.acquire(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (a *attempt) acquire(ctx context.Context) (backend.Grant, error) {
	answered := time.Now()
	for queued := false; ; {
		g, waited, err := a.once(ctx, &answered)
		queued = queued || waited
		switch {
		case err == nil:
			return g, nil
		case errors.Is(err, errRequeue):
			// Its key was removed from outside, or with its lease: to the end of the queue.
			answered = time.Now()
			continue
		case ctx.Err() != nil && queued:
			return nil, backend.Uncertain(ctx.Err())
		case !queued, waited, a.b.life.Err() != nil, errors.Is(err, backend.ErrInvalid), time.Since(answered) > a.req.TTL:
			if queued && !errors.Is(err, backend.ErrUncertain) {
				err = backend.Uncertain(err)
			}
			return nil, err
		}
		if !pause(ctx, 50*time.Millisecond) { // ride it out
			return nil, backend.Uncertain(ctx.Err())
		}
	}
}

// once takes a place in the queue and waits until it is the first, or gone.
func (a *attempt) once(ctx context.Context, answered *time.Time) (g backend.Grant, waited bool, err error) {
	s, err := a.b.session(ctx, a.req.TTL)
	if err != nil {
		return nil, false, err
	}
	defer s.leave()
	within, cancel := context.WithTimeout(ctx, max(a.req.TTL, a.b.opt.open))
	p, err := a.enqueue(within, s)
	cancel()
	if err != nil {
		return nil, false, err
	}
	*answered = time.Now()
	if !p.holder {
		if err := a.wait(ctx, s, p); err != nil {
			return nil, true, err
		}
	}
	return a.grant(s, p.revision), true, nil
}

// wait returns nil when the attempt's key is the first of its folder.
func (a *attempt) wait(ctx context.Context, s *session, p placed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.b.life, cancel)()
	w := &waiter{key: a.key, revision: p.revision, told: make(chan bool, 1), locked: a.locked()}
	v := a.b.viewFor(a.folder, p.before)
	if v == nil {
		few, before := a.survey(ctx, p)
		if !few {
			return a.interrupted(ctx, s, a.follow(ctx, s, p, before, w.locked))
		}
		v = a.b.joinView(a.folder)
	}
	defer v.leave(w)
	v.enter(w)
	select {
	case first := <-w.told:
		if cause, _ := s.fate(); cause != nil {
			return a.interrupted(ctx, s, cause)
		}
		if !first {
			return errRequeue
		}
		return nil
	case <-s.dead:
	case <-ctx.Done():
	}
	return a.interrupted(ctx, s, ctx.Err())
}

// locked returns what tells, once, that the attempt waits.
func (a *attempt) locked() func(backend.Holder) {
	told := a.req.OnWait == nil
	return func(h backend.Holder) {
		if !told {
			told = true
			a.req.OnWait(&backend.LockedError{Holder: h})
		}
	}
}

// interrupted is the error of a wait that did not end by itself.
func (a *attempt) interrupted(ctx context.Context, s *session, err error) error {
	cause, gone := s.fate()
	switch {
	case err == nil && cause == nil, errors.Is(err, errRequeue):
		return err
	case gone:
		return errRequeue // the key went with the lease
	case cause != nil:
		return backend.Uncertain(fmt.Errorf("etcd: no answer for %v: the lease %016x could not be kept alive", s.ttl(), uint64(s.id)))
	case a.b.life.Err() != nil:
		return backend.Uncertain(backend.ErrClosed)
	case ctx.Err() != nil:
		return backend.Uncertain(ctx.Err())
	}
	return backend.Uncertain(err)
}
