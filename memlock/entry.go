package memlock

import (
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// entry is a held lock; its shard's mutex guards it. Whenever that mutex is free, an entry is in
// shard.locks if and only if it has a holder, only an entry with a holder has waiters, and the
// first waiter does not fit beside the holders. So a free lock uses no memory, and a lock with
// waiters is never seen free.
type entry struct {
	sh      *shard
	id      lockID
	holders []*grant // in the order of their tokens; an exclusive one is the only one
	weight  int      // of the holders together

	first, last *waiter // the queue, in the order of arrival

	// timer removes the holders whose TTL has passed. It is armed only while there are waiters:
	// otherwise the next request removes those holders.
	timer *time.Timer
	armed time.Time // when the timer fires, zero if it is not armed
}

// waiter is an attempt in a queue.
type waiter struct {
	grant      grant // what Acquire returns once the lock is granted
	ttl        time.Duration
	done       chan struct{} // closed when the waiter is granted the lock or refused
	err        error         // why it was refused, nil if granted; written before done is closed
	queued     bool          // false once it is granted, refused or has given up
	prev, next *waiter
}

// live returns the entry of a lock that is held at now, or nil. It first removes the holders
// whose TTL has passed, and grants the lock to the waiters that fit then.
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
	e.grantTo(g, now, until)
}

// fits reports whether a share can be held beside the holders, which are of one kind.
func (e *entry) fits(s backend.Share) bool {
	if len(e.holders) == 0 {
		return true
	}
	held := e.holders[0].share
	held.Weight = e.weight
	return s.Fits([]backend.Share{held})
}

// grantTo adds g to the holders, with a new token.
func (e *entry) grantTo(g *grant, now, until time.Time) {
	e.sh.lastToken++
	g.token, g.since, g.until = e.sh.lastToken, now, until
	g.slots = e.freeSlots(g.share)
	e.holders = append(e.holders, g)
	e.weight += g.share.Weight
}

// freeSlots returns the lowest free slots for permits that fit, nil for other shares.
func (e *entry) freeSlots(s backend.Share) []int {
	if s.Capacity == 0 {
		return nil
	}
	taken := make([]int, 0, e.weight)
	for _, g := range e.holders {
		taken = append(taken, g.slots...)
	}
	return s.FreeSlots(taken)
}

// end removes a holder and grants the lock to the waiters that fit then. If nothing holds the
// lock after that, end removes the entry and returns false.
func (e *entry) end(g *grant, now time.Time) bool {
	i := slices.Index(e.holders, g)
	e.holders = slices.Delete(e.holders, i, i+1)
	e.weight -= g.share.Weight
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
		close(w.done)
	}
	if e.first != nil {
		e.arm(now)
	}
}

// enqueue adds a waiter at the end of the queue.
func (e *entry) enqueue(w *waiter, now time.Time) {
	w.queued, w.grant.since = true, now
	w.prev = e.last
	if e.last == nil {
		e.first = w
	} else {
		e.last.next = w
	}
	e.last = w
	e.arm(now)
}

// remove takes a waiter that gives up out of the queue, and admits those that fit then.
func (e *entry) remove(w *waiter, now time.Time) {
	e.unlink(w)
	e.admit(now)
}

// unlink takes a waiter out of the list. If the list is empty then, unlink stops the timer.
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
			w.err = err
			close(w.done)
			refused = true
		}
		w = next
	}
	if refused {
		e.admit(now)
	}
}

// arm makes the timer fire no later than the first TTL passes, if there are waiters. A timer
// that fires too early arms itself again, which is cheaper than a Reset at each renewal and
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
// for another lock: it then does nothing, or looks at that lock too early.
func (e *entry) expire() {
	e.sh.mu.Lock()
	defer e.sh.mu.Unlock()
	if e.first == nil {
		return
	}
	e.armed = time.Time{}
	now := time.Now()
	if held := e.sh.live(e.id, now); held != nil {
		held.arm(now)
	}
}

// locked returns the error that names the first holder.
func (e *entry) locked(now time.Time) *backend.LockedError {
	return &backend.LockedError{Holder: e.holders[0].holder(now)}
}

// info returns what Inspect shows of the lock at now.
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
