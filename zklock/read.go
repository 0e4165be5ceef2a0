package zklock

import (
	"context"
	"slices"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// maxOps is how many operations a request has. A request has at most 1 MB by default, and a path a few kB.
const maxOps = 100

// reading says of which nodes the data are read. In any case they are of the permits that hold, and of the first two that
// do not: their names do not say how many. Those behind count as exclusive until it is their turn.
type reading struct {
	first   bool // of the first
	holders bool // of all that hold
	all     bool
	now     *leaderTime // for their ages
}

const leastBatch = 8 // permits that are read together

// queue reads the queue of a lock up to an order.
func (ss *session) queue(ctx context.Context, dir string, upTo uint64, r reading) (places.Queue, error) {
	l, err := ss.list(ctx, dir)
	if err != nil || l.stat == nil {
		return places.Queue{}, err
	}
	q := newQueue(dir, l, upTo)
	ss.s.recall(dir, &q)
	for {
		held := q.Holders()
		batch := leastBatch
		if len(q.Places) > 0 {
			batch = max(batch, q.Places[0].Share.Capacity)
		}
		var wanted []int
		for i := range q.Places {
			p := &q.Places[i]
			if p.Token > 0 {
				continue
			}
			need := r.all || r.first && i == 0 || r.holders && i < held
			switch k := kindIn(dir, p.ID); {
			case k == permitsNode: // what was remembered of a waiting one does not say whether its slots are recorded by now
				need = need || i < held || p.Share.Exclusive() && i < held+2 || p.Share.Exclusive() && len(wanted) > 0 && len(wanted) < batch
			case k == exclusiveNode && i == 0: // only the first can have become a reader, and only readers ask
				need = need || len(q.Places) > 1 && kindIn(dir, q.Places[1].ID) == readerNode
			}
			if need {
				wanted = append(wanted, i)
			}
		}
		if len(wanted) == 0 {
			ss.s.remember(dir, &q)
			return q, nil
		}
		if err := ss.fill(ctx, dir, &q, wanted, r.now); err != nil {
			return q, err
		}
	}
}

// newQueue returns what the names of nodes say. The lock's node counts its children from zero. If it is deleted and
// created again, the id of the transaction that created it is greater than before, by more than the children that it had.
func newQueue(dir string, l listing, upTo uint64) (q places.Queue) {
	all := inOrder(l.names)
	q.Places = make([]places.Place, 0, len(all))
	for _, c := range all {
		order := uint64(l.stat.Czxid) + uint64(c.seq)
		if order > upTo {
			break
		}
		p := places.Place{ID: dir + "/" + c.node, Order: order}
		p.Owner = c.owner
		if c.kind == readerNode {
			p.Share = backend.Reader
		}
		q.Places = append(q.Places, p)
	}
	return q
}

// kindIn returns what the name of a place below the lock's node says.
func kindIn(dir, id string) kind {
	return kindOfZeros(len(id) - len(dir) - len("/-") - ownerLen - seqLen)
}

// fill reads the nodes with these indices, and removes the places that have ended.
func (ss *session) fill(ctx context.Context, dir string, q *places.Queue, wanted []int, now *leaderTime) error {
	gone := make([]bool, len(q.Places))
	err := inParallel(len(wanted), func(n int) error {
		p := &q.Places[wanted[n]]
		read, err := ss.get(ctx, p.ID)
		if gone[wanted[n]] = read.stat == nil; err == nil && read.stat != nil {
			fill(p, kindIn(dir, p.ID), read.data)
			p.Token, p.Version, p.Age = uint64(read.stat.Czxid), uint64(read.stat.Version), now.age(read.stat)
		}
		return err
	})
	i := -1
	q.Places = slices.DeleteFunc(q.Places, func(places.Place) bool { i++; return gone[i] })
	return err
}

// recall sets what is remembered of permits. Slots that were recorded do not change. Of others the token stays zero.
func (s *service) recall(dir string, q *places.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range q.Places {
		if p, ok := s.permits[dir][q.Places[i].ID]; ok {
			if len(p.Slots) == 0 {
				p.Token = 0
			}
			q.Places[i] = p
		}
	}
}

// remember remembers the permits of a queue that was read.
func (s *service) remember(dir string, q *places.Queue) {
	permits := map[string]places.Place{}
	for _, p := range q.Places {
		if kindIn(dir, p.ID) == permitsNode && !p.Share.Exclusive() {
			permits[p.ID] = p
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(permits) < 2:
		delete(s.permits, dir)
	case s.permits[dir] == nil && len(s.permits) >= maxHeld:
		clear(s.permits) // they are read again
	default:
		s.permits[dir] = permits
	}
}
