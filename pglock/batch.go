package pglock

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
)

const (
	maxTogether = 64                     // attempts share a statement: their rows are locked until it is committed
	spacing     = 500 * time.Microsecond // as in call.NewBatches
)

// replied is the answer to a statement, and when that was sent.
type replied struct {
	answer
	sent time.Time
}

type (
	acquires = call.Batches[queue.Attempt, replied]
	acquire  = call.Member[queue.Attempt, replied]
	removals = call.Batches[queue.End, queue.Ended]
	removal  = call.Member[queue.End, queue.Ended]
)

// slot is the place of a batch among those of its kind. It is free when the batch and its late connections have left it.
type slot struct {
	users atomic.Int32
	free  chan struct{}
}

func newSlot() *slot {
	s := &slot{free: make(chan struct{})}
	s.users.Store(1)
	return s
}

func (s *slot) leave() {
	if s.users.Add(-1) == 0 {
		close(s.free)
	}
}

// member is what queryOnce needs to know of the batch that a statement is of. A statement of one member can be withdrawn
// until it is written, and ends with its caller.
type member struct {
	slot    *slot         // nil: none
	sending *call.Sending // nil: it cannot be withdrawn
}

type memberKey struct{}

func (m member) of(ctx context.Context) context.Context {
	return context.WithValue(ctx, memberKey{}, m)
}

func memberOf(ctx context.Context) member {
	m, _ := ctx.Value(memberKey{}).(member)
	return m
}

// use keeps the slot until leave is called.
func (m member) use() (leave func()) {
	if m.slot == nil {
		return func() {}
	}
	m.slot.users.Add(1)
	return m.slot.leave
}

// write is called before the statement is written, and returns false if it was withdrawn.
func (m member) write() bool { return m.sending == nil || m.sending.Write() }

// sendAcquires sends the requests to acquire of a batch, those of different keys in one statement. It returns when none of
// its connections is in use, also one on which a reply is late: the others are for renewals and removals.
func (s *service) sendAcquires(ctx context.Context, batch []*acquire) (answered bool) {
	sl := newSlot()
	answered = call.Distinct(batch, func(a queue.Attempt) string { return a.Key },
		func(all []*acquire) ([]*acquire, bool) { return s.acquireAll(ctx, sl, all) },
		func(m *acquire) bool { return s.acquireAlone(sl, m) })
	sl.leave()
	<-sl.free
	return answered
}

// acquireAll sends requests for different keys in one statement. It waits for no row, and returns those whose rows another
// transaction has locked. They are in the order of their names, because it may create rows, for which others may wait.
func (s *service) acquireAll(ctx context.Context, sl *slot, all []*acquire) (alone []*acquire, answered bool) {
	slices.SortFunc(all, func(a, b *acquire) int { return bytes.Compare(s.key(a.Request.Key), s.key(b.Request.Key)) })
	n := len(all)
	names, owners, metadata, hashes := make([][]byte, n), make([]string, n), make([]string, n), make([]string, n)
	ttls, weights, capacities, enters := make([]int64, n), make([]int, n), make([]int, n), make([]bool, n)
	for i, m := range all {
		m.Sending().Write()
		a := &m.Request
		names[i], owners[i], metadata[i] = s.key(a.Key), a.Owner, escape(a.Metadata)
		ttls[i], weights[i], capacities[i] = micro(a.TTL), a.Share.Weight, a.Share.Capacity
		enters[i], hashes[i] = a.Mode != queue.NoQueue, hashOf(s.secretOf(a.Owner))
	}
	rows, sent, err := query(member{slot: sl}.of(ctx), s.server, scanAnswer, s.sql.acquireMany,
		names, owners, s.process, metadata, ttls, weights, capacities, enters, hashes)
	for i, m := range all {
		if r := at(rows, i); r.status == locked {
			alone = append(alone, m)
		} else {
			m.End(replied{r, sent}, err)
		}
	}
	return alone, err == nil
}

func (s *service) acquireAlone(sl *slot, m *acquire) (answered bool) {
	a := &m.Request
	r, sent, err := one(member{sl, m.Sending()}.of(m.Caller()), s.server, s.sql.acquire,
		s.key(a.Key), a.Owner, s.process, escape(a.Metadata), micro(a.TTL), a.Share.Weight, a.Share.Capacity,
		a.Mode != queue.NoQueue, hashOf(s.secretOf(a.Owner)))
	m.End(replied{r, sent}, err)
	return err == nil
}

// sendRemovals sends the releases and the removals of a batch.
func (s *service) sendRemovals(ctx context.Context, batch []*removal) (answered bool) {
	if len(batch) == 1 {
		m := batch[0]
		e := s.end(member{sending: m.Sending()}.of(m.Caller()), m.Request)
		m.End(e, nil)
		return e.Err == nil
	}
	ends := make([]queue.End, len(batch))
	for i, m := range batch {
		m.Sending().Write()
		ends[i] = m.Request
	}
	var alone sync.WaitGroup
	s.endMany(ctx, ends, func(i int, e queue.Ended) {
		answered = answered || e.Err == nil
		batch[i].End(e, nil)
	}, func(i int) {
		alone.Go(func() { batch[i].End(s.end(batch[i].Caller(), ends[i]), nil) })
	})
	alone.Wait()
	return answered
}
