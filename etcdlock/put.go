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
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
)

// firstRead is how many keys of a folder a shared attempt that does not wait reads at first: a refused one needs few.
const firstRead = 64

// put is a request for a place.
type put struct {
	places.Put
	s           *service
	session     *session
	folder, key string
	since       int64 // revision of the last read: what was put later counts
	slots       []int // of permits that hold at once
	limit       int64 // of keys to read
	unanswered  bool  // a request had no answer
}

// Put implements places.Service, in one transaction, or two if a key that was free the last time is not. It puts the key
// with its slots if nothing keeps it from holding the lock; else it puts the key and reads the queue, or reads only. A Try
// for a share that fits beside holders takes one more, which requires that no key was put since the read. Every
// transaction requires that no request of the session was given up meanwhile, see session.marker, and that the attempt
// has no key.
func (s *service) Put(ctx context.Context, req places.Put) (places.Answer, error) {
	ss := req.Session.(*session)
	ss.freshen()
	p := &put{Put: req, s: s, session: ss, folder: s.folder(req.Key), slots: req.Share.FreeSlots(nil), limit: firstRead}
	p.key = p.folder + name{req.Share, ss.id, req.Number}.String()
	if req.Share.Exclusive() {
		p.limit = 1
	}
	for {
		a, err := p.once(clientv3.WithRequireLeader(undated{ctx}))
		a.Unanswered = p.unanswered
		switch {
		case errors.Is(err, errAgain):
		case err != nil && p.unanswered && !errors.Is(err, places.ErrEnded):
			return a, backend.Uncertain(err)
		default:
			return a, err
		}
	}
}

// errAgain means that the state at the servers was not as it was read before.
var errAgain = errors.New("etcd: the keys have changed")

// once sends one request. For a key that was free when it was last asked for, that is a short one without a second part:
// it costs the servers and the client a third less.
func (p *put) once(ctx context.Context) (a places.Answer, err error) {
	epoch := p.session.epoch.Load()
	valid := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(p.session.marker), "=", epoch),
		clientv3.Compare(clientv3.CreateRevision(p.key), "=", 0),
	}
	own := []clientv3.Op{clientv3.OpGet(p.key), clientv3.OpGet(p.session.marker)}
	var r executed
	switch {
	case p.Mode == places.Follow:
		r, err = p.commit(ctx, valid, p.op(nil), own...)
	case p.since == 0 && !p.s.contended.has(p.folder):
		conds := append(p.free(), valid[0]) // a key of the attempt would be in the folder
		if p.Share == backend.Reader {
			conds = append(conds, valid[1])
		}
		r, err = p.commit(ctx, conds, p.op(p.slots))
	default:
		otherwise := []clientv3.Op{clientv3.OpGet(p.folder, clientv3.WithPrefix(), clientv3.WithLimit(p.limit), oldestFirst)}
		if p.Mode != places.Try {
			otherwise = []clientv3.Op{p.op(nil), clientv3.OpGet(p.folder, p.wanted()...)}
		}
		r, err = p.commit(ctx, append(p.free(), valid...), p.op(p.slots), clientv3.OpTxn(valid, otherwise, own))
	}
	if err != nil {
		return a, err
	}
	kvs := func(all []*etcdserverpb.ResponseOp, i int) []*mvccpb.KeyValue {
		return all[i].GetResponseRange().GetKvs()
	}
	switch {
	case p.Mode == places.Follow && r.succeeded:
		a.Place = p.place(r.revision, nil)
		return a, nil
	case p.Mode == places.Follow:
		return p.refused(ctx, epoch, kvs(r.responses, 0), kvs(r.responses, 1))
	case r.succeeded:
		p.s.contended.set(p.folder, false)
		a.Place, a.Holds = p.place(r.revision, p.slots), true
		return a, nil
	case len(r.responses) == 0:
		p.s.contended.set(p.folder, true)
		return a, errAgain
	}
	in := r.responses[0].GetResponseTxn()
	switch {
	case !in.Succeeded:
		return p.refused(ctx, epoch, kvs(in.Responses, 0), kvs(in.Responses, 1))
	case p.Mode == places.Try:
		a.Queue = newQueue(p.folder, kvs(in.Responses, 0), false)
		return a, p.fits(ctx, r.revision, &a.Queue, in.Responses[0].GetResponseRange().GetMore())
	}
	a.Place = p.place(r.revision, nil)
	a.Queue = newQueue(p.folder, kvs(in.Responses, 1), in.Responses[1].GetResponseRange().GetMore())
	a.Queue.Count = int(in.Responses[1].GetResponseRange().GetCount())
	return a, nil
}

// free is true if nothing that was put after p.since keeps the attempt from holding the lock: for a reader the keys that
// are not of readers, for others any.
func (p *put) free() []clientv3.Cmp {
	end, readers := clientv3.GetPrefixRangeEnd(p.folder), p.folder+readers
	if p.Share == backend.Reader {
		return []clientv3.Cmp{
			created(p.folder, readers, p.since), created(clientv3.GetPrefixRangeEnd(readers), end, p.since),
		}
	}
	return []clientv3.Cmp{created(p.folder, end, p.since)}
}

// created is true if no key of a range was created after a revision. It is true for a range without keys.
func created(from, to string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(from).WithRange(to), "<", revision+1)
}

// wanted says which places an attempt that waits reads: an exclusive one the last three.
func (p *put) wanted() []clientv3.OpOption {
	if p.Share.Exclusive() {
		return []clientv3.OpOption{clientv3.WithPrefix(), newestFirst, clientv3.WithLimit(3)}
	}
	return []clientv3.OpOption{clientv3.WithPrefix()}
}

func (p *put) op(slots []int) clientv3.Op {
	value := valueOf(&places.Place{Contender: backend.Contender{Owner: p.Owner, Metadata: p.Metadata}, Slots: slots})
	return clientv3.OpPut(p.key, value, clientv3.WithLease(p.session.id))
}

func (p *put) place(revision int64, slots []int) *places.Place {
	r := uint64(revision)
	return &places.Place{
		Contender: backend.Contender{Owner: p.Owner, Metadata: p.Metadata, Share: p.Share},
		ID:        p.key, Order: r, Token: r, Version: r, Slots: slots,
	}
}

// fits returns errAgain if an attempt that does not wait may hold the lock beside the first places of the queue. more is
// whether there are others.
func (p *put) fits(ctx context.Context, revision int64, q *places.Queue, more bool) error {
	switch {
	case !q.Fits(p.Share):
		return nil
	case more: // what was read is not enough
		p.limit = 0
		return errAgain
	}
	for all := q.Unrecorded(maxOps); len(all) > 0; all = q.Unrecorded(maxOps) {
		done, err := p.s.Update(ctx, all)
		if err != nil {
			return backend.NotExecuted(err) // it concerns others only
		}
		if !done {
			return errAgain
		}
		for _, one := range all {
			q.Places[q.Index(one.ID)] = one
		}
	}
	p.since, p.slots = revision, q.FreeSlots(p.Share)
	return errAgain
}

// refused finds out why the servers have refused a request: it was executed before, or another one was given up.
func (p *put) refused(ctx context.Context, epoch int64, own, marker []*mvccpb.KeyValue) (a places.Answer, err error) {
	switch {
	case len(marker) == 0:
		p.session.end(p.session.gone(), false)
		return a, places.ErrEnded
	case marker[0].ModRevision != epoch:
		p.session.advance(marker[0].ModRevision)
		return a, errAgain
	case len(own) == 0:
		return a, errAgain
	}
	one := newPlace(p.folder, own[0])
	if one.Owner != p.Owner {
		return a, backend.NotExecuted(fmt.Errorf("etcd: another program has put the key %.200q", p.key))
	}
	if a.Queue, err = p.s.Read(ctx, p.Key, one.Order, 0); err != nil {
		return a, backend.Uncertain(err)
	}
	i := a.Queue.Index(p.key)
	if i < 0 {
		return a, errAgain
	}
	a.Place = &a.Queue.Places[i]
	a.Holds = i < a.Queue.Holders() && (p.Share.Capacity == 0 || len(a.Place.Slots) > 0)
	return a, nil
}

// commit sends a transaction, again as resendPolicy allows: the attempt has one key however often the servers execute
// it.
func (p *put) commit(
	ctx context.Context, conds []clientv3.Cmp, then clientv3.Op, otherwise ...clientv3.Op,
) (executed, error) {
	s := p.s
	resend := resendPolicy{limit: s.opt.openTimeout}
	for {
		r, err := s.batches.Do(ctx, txn{p.folder, conds, []clientv3.Op{then}, otherwise})
		if err == nil {
			return r, nil
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) { // nothing remains without the lease, or can come later
			p.session.end(p.session.gone(), true)
			return executed{}, places.ErrEnded
		}
		p.unanswered = p.unanswered || !notExecuted(err)
		if s.life.Context().Err() != nil || !resend.wait(ctx, err) {
			return executed{}, s.writeError(ctx, err)
		}
	}
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
	return call.Sleep(ctx, p.pause)
}
