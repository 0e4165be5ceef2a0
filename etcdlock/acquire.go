package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// errRequeue means that the attempt has no key and was not granted: it begins again.
var errRequeue = errors.New("etcd: the place in the queue is gone")

// TryAcquire makes one attempt, in one round trip once the lease exists. It puts the key
// only into an empty folder, so it does not overtake a waiter.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req)
	var g backend.Grant
	err := b.do(ctx, func(ctx context.Context) error {
		for {
			s, err := b.session(ctx, req.TTL)
			if err != nil {
				return err
			}
			if req.Share.Exclusive() {
				g, err = a.try(ctx, s)
			} else {
				g, err = a.tryShared(ctx, s, math.MaxInt)
			}
			s.leave()
			if !errors.Is(err, errRequeue) { // else the lease is gone: again with a new one
				return err
			}
		}
	})
	return g, err
}

func (a *attempt) try(ctx context.Context, s *session) (backend.Grant, error) {
	a.begin(s)
	// A comparison of a range is true if it is true for every key, so also without keys.
	empty := clientv3.Compare(clientv3.CreateRevision(a.folder), "=", 0).WithPrefix()
	r, err := a.txn(ctx, s, []clientv3.Cmp{empty},
		[]clientv3.Op{a.put(s, nil)},
		[]clientv3.Op{clientv3.OpGet(a.key), clientv3.OpGet(a.folder, clientv3.WithFirstCreate()...)})
	if err != nil {
		return nil, err
	}
	if r.Succeeded {
		return a.newGrant(s, r.Header.Revision), nil
	}
	own, first := rangeOf(r, 0).GetKvs(), rangeOf(r, 1).GetKvs()
	if len(own) > 0 && own[0].CreateRevision == first[0].CreateRevision { // an earlier request put the key
		return a.newGrant(s, own[0].CreateRevision), nil
	}
	q := newQueue(a.folder, first)
	return nil, a.refused(&q, len(own) > 0)
}

// refused returns the error of an attempt that the folder with the keys q refuses, or its
// tombstone if there are none. queued is whether the attempt has a key in it.
func (a *attempt) refused(q *queue, queued bool) error {
	uncertain := queued || a.unanswered.Load() // an earlier request may be executed later
	var locked error = &backend.LockedError{}
	switch {
	case len(q.keys) > 0:
		locked = &backend.LockedError{Holder: q.keys[0].holder()}
	case !uncertain:
		locked = a.abandonedError()
	}
	if uncertain {
		return backend.Uncertain(locked)
	}
	a.forget()
	return locked
}

func (a *attempt) abandonedError() error {
	return fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
}

func (a *attempt) put(s *session, slots []int) clientv3.Op {
	return clientv3.OpPut(a.key, valueOf(formatSlots(slots), a.req.Metadata), clientv3.WithLease(s.id))
}

func rangeOf(r *clientv3.TxnResponse, i int) *etcdserverpb.RangeResponse {
	return r.Responses[i].GetResponseRange()
}

// queuePlace is the key of an attempt in the queue.
type queuePlace struct {
	revision int64 // that created the key: the position in the queue, and the token
	first    bool
	others   int64 // number of keys of others when the key was put, or more; -1 if they were not counted
}

// enqueue puts the key of the attempt into the queue, in one round trip. With count the transaction also counts the keys of the folder, so the answer says
// whether the key is the first. That costs the server time for each of them, and for each that
// was deleted since the last compaction.
func (a *attempt) enqueue(ctx context.Context, s *session, count bool) (queuePlace, error) {
	a.begin(s)
	then := []clientv3.Op{a.put(s, nil)}
	if count {
		then = append(then, clientv3.OpGet(a.folder, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
	}
	r, err := a.txn(ctx, s, []clientv3.Cmp{a.noKey()}, then, a.getOwn(s))
	if err != nil {
		return queuePlace{}, err
	}
	if !r.Succeeded {
		own, _ := a.ownOf(r)
		if own == nil {
			return queuePlace{}, a.failed(a.abandonedError())
		}
		return queuePlace{revision: own.revision, others: math.MaxInt64}, nil // an earlier request put the key
	}
	p := queuePlace{revision: r.Header.Revision, others: -1}
	if count {
		p.others = rangeOf(r, 1).GetCount() - 1
		p.first = p.others == 0
	}
	return p, nil
}

// Acquire implements backend.Waiter. It puts a key into the queue and waits until that
// holds the lock.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req)
	var g backend.Grant
	err := b.do(ctx, func(ctx context.Context) (err error) {
		g, err = a.acquire(ctx)
		return err
	})
	return g, err
}

// acquire repeats acquireOnce: at the end of the queue if the place in it is gone, and
// for up to the TTL if the servers fail after the attempt was in the queue. The process may
// have been stopped for that long, so it gives up only after an attempt that began later.
func (a *attempt) acquire(ctx context.Context) (backend.Grant, error) {
	a.answered = time.Now()
	for queued := false; ; {
		begun := time.Now()
		g, waited, err := a.acquireOnce(ctx)
		queued = queued || waited
		switch {
		case err == nil:
			return g, nil
		case errors.Is(err, errRequeue): // the key was deleted, or the lease ended
			a.answered = time.Now()
			continue
		case ctx.Err() != nil && queued:
			return nil, backend.Uncertain(ctx.Err())
		case !queued, a.b.ctx.Err() != nil, errors.Is(err, backend.ErrInvalid), begun.Sub(a.answered) >= a.req.TTL:
			if queued && !errors.Is(err, backend.ErrUncertain) {
				err = backend.Uncertain(err)
			}
			return nil, err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return nil, backend.Uncertain(ctx.Err())
		}
	}
}

// maxTries is how often Acquire of a share tries before it puts a key into the queue. That
// succeeds also while other attempts succeed all the time.
const maxTries = 2

// acquireOnce takes a place in the queue and waits until that holds the lock or is gone. It
// returns whether the attempt was in the queue.
func (a *attempt) acquireOnce(ctx context.Context) (g backend.Grant, waited bool, err error) {
	limit := max(a.req.TTL, a.b.opt.openTimeout)
	if time.Since(a.answered) >= a.req.TTL {
		limit = max(a.req.TTL/4, time.Second) // to find out whether the servers answer again
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
	defer cancel()
	s, err := a.b.session(limited, a.req.TTL)
	if err != nil {
		return nil, false, err
	}
	defer s.leave()
	shared := !a.req.Share.Exclusive()
	v := a.b.followedQueue(a.folder, a.req.Share)
	if v == nil && shared {
		if g, err = a.tryShared(limited, s, maxTries); !errors.Is(err, backend.ErrLocked) {
			return g, err == nil, err
		}
		v = a.b.joinView(a.folder)
	}
	if v != nil {
		defer v.leave()
	}
	p, err := a.enqueue(limited, s, v == nil)
	if err != nil {
		return nil, false, err
	}
	a.answered = time.Now()
	var slots []int
	if !p.first {
		err = a.wait(ctx, s, v, p)
	}
	if err == nil && a.req.Share.Capacity > 0 {
		slots, err = a.recordedSlots(ctx, s, v, p)
	}
	if err != nil {
		if t := s.lastAnswer(); t.After(a.answered) {
			a.answered = t
		}
		return nil, true, err
	}
	return a.newGrant(s, p.revision, slots...), true, nil
}

// txn sends a request to acquire, which a tombstone of the attempt refuses, once fewer than
// maxAcquiring of this backend have no reply. It sends the request again as resendPolicy
// allows: the attempt has one key however often the servers execute it. It returns errRequeue
// if the lease is gone.
func (a *attempt) txn(ctx context.Context, s *session, conds []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	b := a.b
	select {
	case b.acquiring <- struct{}{}:
		defer func() { <-b.acquiring }()
	case <-ctx.Done():
		return nil, a.failed(backend.NotExecuted(b.readError(ctx, ctx.Err())))
	}
	conds = append(conds, clientv3.Compare(clientv3.CreateRevision(b.tombstone(s.id, a.req.Owner)), "=", 0))
	resend := resendPolicy{limit: b.opt.openTimeout}
	for {
		r, err := b.client.Txn(ctx).If(conds...).Then(then...).Else(otherwise...).Commit()
		if err == nil {
			return r, nil
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			// Nothing of an earlier request remains without the lease, or can come later.
			s.endAsGone()
			a.forget()
			return nil, errRequeue
		}
		if !notExecuted(err) {
			a.unanswered.Store(true)
		}
		if b.ctx.Err() == nil && resend.wait(ctx, err) {
			continue
		}
		return nil, a.failed(b.writeError(ctx, err))
	}
}

// failed returns the error of an attempt whose last request failed with err.
func (a *attempt) failed(err error) error {
	if !a.unanswered.Load() {
		a.forget()
	} else if !errors.Is(err, backend.ErrUncertain) {
		err = backend.Uncertain(err) // because of an earlier request
	}
	return err
}

// resendPolicy allows to send a request again three times if the connection breaks, and
// for up to limit while the servers have no leader or do not exist. The limit counts from
// the first such error: if the leader died, its followers answer late.
type resendPolicy struct {
	limit  time.Duration
	broken int // connections
	until  time.Time
	pause  time.Duration
}

// wait waits before the next request. It returns false if err does not allow one, or if
// ctx has ended.
func (p *resendPolicy) wait(ctx context.Context, err error) bool {
	switch {
	case unavailable(err):
		if p.until.IsZero() {
			p.until = time.Now().Add(p.limit)
		}
		if !time.Now().Before(p.until) {
			return false
		}
	case disconnected(err) && p.broken < 3:
		p.broken++
	default:
		return false
	}
	p.pause = min(max(2*p.pause, 20*time.Millisecond), 250*time.Millisecond)
	return pause(ctx, p.pause)
}
