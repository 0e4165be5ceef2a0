package memlock

import (
	"time"

	"github.com/interlock-go/lock/backend"
)

// entry is a held lock. Invariant while the shard's mutex is free: an entry is in the
// map if and only if it has a holder, and only an entry with a holder has waiters. So
// a free lock uses no memory, and a lock with waiters is never seen free.
type entry struct {
	sh     *shard
	id     lockID
	holder *grant

	first, last *waiter // the queue, in the order of arrival

	// timer assigns the lock to the first waiter when the holder's TTL has passed. It
	// is armed only while there are waiters; without them the next request looks.
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

// live returns the entry of a lock if it is held at now. If the holder's TTL has
// passed, live first assigns the lock to the first waiter.
func (sh *shard) live(id lockID, now time.Time) *entry {
	e := sh.locks[id]
	for e != nil && !now.Before(e.holder.until) {
		if !e.handOver(now) {
			return nil
		}
	}
	return e
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

func (e *entry) grantTo(g *grant, now, until time.Time) {
	e.sh.last++
	g.token, g.since, g.until = e.sh.last, now, until
	e.holder = g
}

// handOver ends the grant of the holder and assigns the lock to the first waiter. If
// there is none, it removes the entry and returns false.
func (e *entry) handOver(now time.Time) bool {
	w := e.first
	if w == nil {
		e.disarm()
		delete(e.sh.locks, e.id)
		// The timer is not kept: it may belong to a synctest bubble that ends. The entry
		// keeps its shard: a timer that fires now reads it to find the mutex.
		e.id, e.holder, e.timer = lockID{}, nil, nil
		e.sh.spare = e
		return false
	}
	e.remove(w)
	e.grantTo(&w.grant, now, now.Add(w.ttl))
	close(w.turn)
	e.arm(now)
	return true
}

func (e *entry) append(w *waiter, now time.Time) {
	w.queued, w.grant.since = true, now
	if w.prev = e.last; w.prev == nil {
		e.first = w
	} else {
		w.prev.next = w
	}
	e.last = w
	e.arm(now)
}

func (e *entry) remove(w *waiter) {
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
func (e *entry) refuse(err error, match func(*waiter) bool) {
	for w := e.first; w != nil; {
		next := w.next
		if match(w) {
			e.remove(w)
			w.err = err
			close(w.turn)
		}
		w = next
	}
}

// arm makes the timer fire no later than the end of the holder's TTL. A timer that
// fires too early arms itself again, which is cheaper than a Reset at each renewal and
// hand-off.
func (e *entry) arm(now time.Time) {
	at := e.holder.until
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
	if now.Before(e.holder.until) {
		e.arm(now)
		return
	}
	e.sh.live(e.id, now)
}

func (e *entry) locked(now time.Time) *backend.LockedError {
	return &backend.LockedError{Holder: e.holder.holder(now)}
}

func (e *entry) info(now time.Time) backend.Info {
	h := e.holder.holder(now)
	info := backend.Info{Name: e.id.name, Holder: &h}
	for w := e.first; w != nil; w = w.next {
		info.Waiters = append(info.Waiters, w.grant.contender(now))
	}
	return info
}
