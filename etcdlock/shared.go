package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// firstRead is how many keys of a folder an attempt reads at first: a refused one needs few.
const firstRead = 64

var oldestFirst = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)

// tryShared puts the key of a shared attempt if it holds the lock at once. A reader takes one
// round trip beside any readers, and permits take one if the lock is free. Otherwise the
// refused transaction reads the folder, and if the share fits the next transaction requires
// that no key was put since that would come before this one in the queue and matters. It
// makes at most tries more transactions.
func (a *attempt) tryShared(ctx context.Context, s *session, tries int) (backend.Grant, error) {
	a.begin(s)
	q, read := newQueue(a.folder, nil), int64(0) // q has all keys of this revision
	for limit := int64(firstRead); ; tries-- {
		slots := q.freeSlots(a.req.Share)
		r, err := a.txn(ctx, s, append(a.nothingBefore(read), a.noKey()),
			[]clientv3.Op{a.put(s, slots)},
			append(a.getOwn(s), clientv3.OpGet(a.folder, clientv3.WithPrefix(), clientv3.WithLimit(limit), oldestFirst)))
		if err != nil {
			return nil, err
		}
		if r.Succeeded {
			return a.newGrant(s, r.Header.Revision, slots...), nil
		}
		own, abandoned := a.ownOf(r)
		q = newQueue(a.folder, rangeOf(r, 2).GetKvs())
		more := rangeOf(r, 2).GetMore()
		switch fits := q.fits(a.req.Share); {
		case own != nil && q.holds(own) && (a.req.Share.Capacity == 0 || len(own.slots) > 0):
			return a.newGrant(s, own.revision, own.slots...), nil // an earlier request put the key
		case own != nil && !more:
			return nil, a.refused(&q, true)
		case own == nil && abandoned:
			return nil, a.failed(a.abandonedError())
		case own == nil && (!fits || tries == 0):
			return nil, a.refused(&q, false)
		case more: // what was read is not enough: read all
			q, read, limit = newQueue(a.folder, nil), 0, 0
			continue
		}
		read = r.Header.Revision
		for q.unrecorded() != nil {
			if err := a.b.recordSlots(ctx, &q); err != nil {
				return nil, a.failed(backend.NotExecuted(a.b.readError(ctx, err))) // it concerns others only
			}
		}
	}
}

// nothingBefore is true if no key was put after a revision that could come before that of the
// attempt: for a reader one that is not of a reader, for permits any.
func (a *attempt) nothingBefore(revision int64) []clientv3.Cmp {
	created := func(from, to string) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(from).WithRange(to), "<", revision+1)
	}
	end := clientv3.GetPrefixRangeEnd(a.folder)
	if a.req.Share.Capacity > 0 {
		return []clientv3.Cmp{created(a.folder, end)}
	}
	r := a.folder + readers
	return []clientv3.Cmp{created(a.folder, r), created(clientv3.GetPrefixRangeEnd(r), end)}
}

func (a *attempt) noKey() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(a.key), "=", 0)
}

// getOwn reads what ownOf returns.
func (a *attempt) getOwn(s *session) []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(a.key), clientv3.OpGet(a.b.tombstone(s.id, a.req.Owner), clientv3.WithCountOnly())}
}

// ownOf returns the key of the attempt, or nil, and whether it has a tombstone.
func (a *attempt) ownOf(r *clientv3.TxnResponse) (own *contender, abandoned bool) {
	if kvs := rangeOf(r, 0).GetKvs(); len(kvs) > 0 {
		own = newContender(a.folder, kvs[0])
	}
	return own, rangeOf(r, 1).GetCount() > 0
}
