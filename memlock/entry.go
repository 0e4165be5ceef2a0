package memlock

import (
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// entry is a held lock. Invariant while the shard's mutex is free: an entry is in the
// map if and only if it has a holder, only an entry with a holder has waiters, and the first
// waiter does not fit beside the holders. So a free lock uses no memory, and a lock with
// waiters is never seen free.
type entry struct {
	sh      *shard
	id      lockID
	holders []*grant      // in the order of their tokens; one that is exclusive is the only one
	weight  int           // of the holders together
	shares  int           // the number of shared grants and waiters, which have one capacity
	share   backend.Share // of the last of them

	first, last *waiter // the queue, in the order of arrival

	// timer removes the first holder whose TTL has passed. It is armed only while there are
	// waiters; without them the next request looks.
	timer *time.Timer
	armed time.Time // when the timer fires, zero if it is not armed
}

// waiter is an attempt in a queue.
type waiter struct {
	grant      grant // what the attempt gets at its turn
	ttl        time.Duration
	turn       chan struct{} // closed when another goroutine has removed the waiter from the queue
	err        error         // why it was removed, nil if it has the grant
	queued     bool
	prev, next *waiter
}

// live returns the entry of a lock if it is held at now. It first removes the holders whose
// TTL has passed, and grants the lock to the waiters that fit then.
func (sh *shard) live(id lockID, now time.Time) *entry {
	e := sh.locks[id]
	for e != nil {
		g := e.firstToEnd()
		if now.Before(g.until) {
			break
		}
		if !e.end(g, now) {
			return nil
		}
	}
	return e
}

// firstToEnd returns the holder whose TTL passes first.
func (e *entry) firstToEnd() *grant {
	first := e.holders[0]
	for _, g := range e.holders[1:] {
		if g.until.Before(first.until) {
			first = g
		}
	}
	return first
}

// take makes g the holder of a free lock.
func (sh *shard) take(g *grant, now, until time.Time) {
	e := sh.spare
	if e == nil {
		e = &entry{sh: sh}
	}
	sh.spare = nil
	e.id = g.id
	if sh.locks == nil {
		sh.locks = map[lockID]*entry{}
	}
	sh.locks[g.id] = e
	e.count(g.share)
	e.grantTo(g, now, until)
}

// count counts a contender, if it is a shared one.
func (e *entry) count(s backend.Share) {
	if !s.Exclusive() {
		e.share = s
		e.shares++
	}
}

func (e *entry) discount(s backend.Share) {
	if !s.Exclusive() {
		e.shares--
	}
}

// checkCapacity returns an error if the lock is used with another capacity.
func (e *entry) checkCapacity(s backend.Share) error {
	if !s.Exclusive() && e.shares > 0 && e.share.Capacity != s.Capacity {
		return backend.CapacityError(s, e.share)
	}
	return nil
}

// fits reports whether a share can be held beside the holders.
func (e *entry) fits(s backend.Share) bool {
	switch {
	case len(e.holders) == 0:
		return true
	case s.Exclusive() || e.holders[0].share.Exclusive():
		return false
	}
	return s.Capacity == 0 || e.weight+s.Weight <= s.Capacity
}

func (e *entry) grantTo(g *grant, now, until time.Time) {
	e.sh.last++
	g.token, g.since, g.until = e.sh.last, now, until
	g.slots = e.freeSlots(g.share)
	e.holders = append(e.holders, g)
	e.weight += g.share.Weight
}

// freeSlots returns the lowest free slots for a share that fits.
func (e *entry) freeSlots(s backend.Share) []int {
	if s.Capacity == 0 {
		return nil
	}
	taken := make([]bool, s.Capacity)
	for _, g := range e.holders {
		for _, i := range g.slots {
			taken[i] = true
		}
	}
	slots := make([]int, 0, s.Weight)
	for i := 0; len(slots) < s.Weight; i++ {
		if !taken[i] {
			slots = append(slots, i)
		}
	}
	return slots
}

// end removes a holder and grants the lock to the waiters that fit then. If nothing holds the
// lock after that, end removes the entry and returns false.
func (e *entry) end(g *grant, now time.Time) bool {
	i := slices.Index(e.holders, g)
	e.holders = slices.Delete(e.holders, i, i+1)
	e.weight -= g.share.Weight
	e.discount(g.share)
	e.admit(now)
	if len(e.holders) > 0 {
		return true
	}
	e.disarm()
	delete(e.sh.locks, e.id)
	// The timer is not kept: it may belong to a synctest bubble that ends. The entry
	// keeps its shard: a timer that fires now reads it to find the mutex.
	e.id, e.timer = lockID{}, nil
	e.sh.spare = e
	return false
}

// admit grants the lock to the waiters at the head of the queue as long as they fit.
func (e *entry) admit(now time.Time) {
	for w := e.first; w != nil && e.fits(w.grant.share); w = e.first {
		e.unlink(w)
		e.grantTo(&w.grant, now, now.Add(w.ttl))
		close(w.turn)
	}
	if e.first != nil {
		e.arm(now)
	}
}

func (e *entry) append(w *waiter, now time.Time) {
	w.queued, w.grant.since = true, now
	e.count(w.grant.share)
	if w.prev = e.last; w.prev == nil {
		e.first = w
	} else {
		w.prev.next = w
	}
	e.last = w
	e.arm(now)
}

// remove takes a waiter that has no grant out of the queue.
func (e *entry) remove(w *waiter, now time.Time) {
	e.unlink(w)
	e.discount(w.grant.share)
	e.admit(now)
}

// unlink takes a waiter out of the queue.
func (e *entry) unlink(w *waiter) {
	w.queued = false
	if w.prev == nil {
		e.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		e.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	if e.first == nil {
		e.disarm()
	}
}

// refuse removes the waiters that match from the queue. Their waits end with err.
func (e *entry) refuse(err error, now time.Time, match func(*waiter) bool) {
	refused := false
	for w := e.first; w != nil; {
		next := w.next
		if match(w) {
			e.unlink(w)
			e.discount(w.grant.share)
			w.err = err
			close(w.turn)
			refused = true
		}
		w = next
	}
	if refused {
		e.admit(now)
	}
}

// arm makes the timer fire no later than the end of the first holder's TTL. A timer that
// fires too early arms itself again, which is cheaper than a Reset at each renewal and
// hand-off.
func (e *entry) arm(now time.Time) {
	at := e.firstToEnd().until
	if e.first == nil || (!e.armed.IsZero() && !at.Before(e.armed)) {
		return
	}
	e.armed = at
	if e.timer == nil {
		e.timer = time.AfterFunc(at.Sub(now), e.expire)
	} else {
		e.timer.Reset(at.Sub(now))
	}
}

func (e *entry) disarm() {
	if !e.armed.IsZero() {
		e.timer.Stop()
		e.armed = time.Time{}
	}
}

// expire runs when the timer fires. It may run late, when the entry is free or is used
// for another lock.
func (e *entry) expire() {
	e.sh.mu.Lock()
	defer e.sh.mu.Unlock()
	if e.first == nil {
		return
	}
	e.armed = time.Time{}
	now := time.Now()
	if e := e.sh.live(e.id, now); e != nil {
		e.arm(now)
	}
}

func (e *entry) locked(now time.Time) *backend.LockedError {
	return &backend.LockedError{Holder: e.holders[0].holder(now)}
}

func (e *entry) info(now time.Time) backend.Info {
	h := e.holders[0].holder(now)
	info := backend.Info{Name: e.id.name, Holder: &h}
	for _, g := range e.holders[1:] {
		info.Others = append(info.Others, g.holder(now))
	}
	for w := e.first; w != nil; w = w.next {
		info.Waiters = append(info.Waiters, w.grant.contender(now))
	}
	return info
}
