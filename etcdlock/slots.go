package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// Permits that hold the lock have no slots until a transaction has recorded them in their
// keys. Any client may send it, for all keys in its copy of the queue that hold the lock and
// have none, in the order of the queue: so a holder that does nothing does not delay the
// others. It requires that these keys were not put again. Keys with slots are therefore always
// the first, and the copy has all of them whenever the transaction is executed, however late:
// the slots that were free in the copy still are.

// maxRecorded is how many keys a transaction records, below --max-txn-ops of the servers.
const maxRecorded = 100

// unrecorded returns the holders whose slots are not recorded.
func (q *queue) unrecorded() []*contender {
	held := q.holders()
	for i, c := range held {
		if c.share.Capacity > 0 && len(c.slots) == 0 {
			return held[i:]
		}
	}
	return nil
}

// freeSlots returns the lowest slots that are free for a share that fits.
func (q *queue) freeSlots(s backend.Share) []int {
	var taken []int
	for _, c := range q.keys {
		taken = append(taken, c.slots...)
	}
	return s.FreeSlots(taken)
}

// recordSlots records the slots of holders that have none, in q too. If one of their keys was
// put or deleted meanwhile, it reads q again. The error is that of the client.
func (b *Backend) recordSlots(ctx context.Context, q *queue) error {
	var unchanged []clientv3.Cmp
	var puts []clientv3.Op
	unrecorded := q.unrecorded()
	for i := range min(len(unrecorded), maxRecorded) {
		c := *unrecorded[i]
		c.slots = q.freeSlots(c.share)
		unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(c.key), "=", c.modified))
		puts = append(puts, clientv3.OpPut(c.key, valueOf(formatSlots(c.slots), c.metadata), clientv3.WithIgnoreLease()))
		unrecorded[i] = &c // in q
	}
	r, err := b.client.Txn(ctx).If(unchanged...).Then(puts...).
		Else(clientv3.OpGet(q.folder, clientv3.WithPrefix(), clientv3.WithLimit(int64(unrecorded[0].share.Capacity)), oldestFirst)).Commit()
	if err == nil && !r.Succeeded {
		*q = newQueue(q.folder, rangeOf(r, 0).GetKvs())
	}
	return err
}

// recordedSlots returns the slots of an attempt whose key holds the lock by the view v. One
// attempt of the process records at a time: the others find their slots in the view then.
func (a *attempt) recordedSlots(ctx context.Context, s *session, v *view, p queuePlace) ([]int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	select {
	case v.recording <- struct{}{}:
		defer func() { <-v.recording }()
	case <-ctx.Done():
		return nil, a.waitError(s, ctx.Err())
	}
	for q := v.holders(); ; v.addSlots(&q) {
		i, found := q.find(a.key, p.revision)
		if !found {
			return nil, errRequeue
		}
		if slots := q.keys[i].slots; len(slots) > 0 {
			return slots, nil
		}
		if err := a.b.recordSlots(ctx, &q); err != nil {
			return nil, a.waitError(s, a.b.readError(ctx, err))
		}
	}
}

// addSlots adds the slots in q to the copy of v, which receives the events of them later.
func (v *view) addSlots(q *queue) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range q.keys {
		if i, found := v.queue.find(c.key, c.revision); found && len(c.slots) > 0 {
			v.queue.keys[i] = c
		}
	}
}
