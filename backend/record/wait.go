package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Queue implements backend.Waiter for the locks of a Store. The waiters of one process wait for a key
// in the order of their arrival, and only the first of them sends requests, so a process costs
// the service one waiter for each key. Processes that have waited for 100 ms take turns.
type Queue struct {
	Locks *Locks
	// Watch begins to watch a key. The channel gets the version of the record after each change, or only
	// the newest one after several, and is closed when changes may have been missed. It wakes the waiter, which reads the
	// record unless it has read that version already: another program may be able to send notifications. A change soon
	// after Watch returns may be missed too: the servers of a cluster learn of the watch one
	// after the other. So the record is read again if there is no change for 100 ms.
	// Nil: the first waiter only reads the record.
	Watch func(ctx context.Context, key string) (changes <-chan string, stop func(), err error)
	// Poll is the average interval at which the first waiter reads the record, whether it
	// has changed or not. It must be positive: about 200 ms for a service that answers in a
	// millisecond, 1 s if requests cost money, and 10 s with a Watch.
	Poll time.Duration
	// FastPoll is the first of these intervals after a change of the holder. The others double up
	// to Poll, so that short holds cost less time and long ones fewer requests. It is a few round
	// trips. Zero: Poll.
	FastPoll time.Duration

	mu    sync.Mutex // guards turns, and the asked of each
	turns map[string]*turn
}

// turn is taken by the waiter of a key that sends requests.
type turn struct {
	waiters int
	asked   *asked                              // the attempt that the others wait for; nil: none is under way
	taken   chan struct{}                       // has an element while the turn is taken
	locked  atomic.Pointer[backend.LockedError] // why the last request was refused; nil: none was yet
	line    *line                               // from the first refusal

	// The fields below belong to the waiter that has the turn.
	changes <-chan string // of the watch, or nil
	stop    func()
	at      look      // the record that was read or written last
	due     time.Time // when the record may be taken, if it stays as it is; zero: it never may
	fresh   bool      // the watch is new, and may have missed a change
	current bool      // nothing has changed since the last attempt but what the watch will report
	failing time.Time // since when the service fails
}

// asked is an attempt before the turn of its waiter.
type asked struct {
	ended chan struct{}
	err   error // of the service, which holds for those who wait for the answer; set before ended is closed
}

// retryPause is the pause of a waiter after a request that failed, and after a watch has begun.
const retryPause = 100 * time.Millisecond

// behind is the pause of a waiter between a change and its read, for each process before it.
const behind = time.Millisecond

// Acquire implements backend.Waiter. It sends no request before its turn if others wait already, or
// if the first request of another waiter was answered meanwhile.
func (q *Queue) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	t := q.join(req.Key)
	g, err := q.wait(ctx, req, t)
	if last := q.leave(req.Key, t); err != nil && last && q.Locks.seen.placed(req.Key) {
		err = backend.Uncertain(err) // Abandon removes the place
	}
	return g, err
}

func (q *Queue) wait(ctx context.Context, req backend.Request, t *turn) (backend.Grant, error) {
	began := time.Now()
	for t.locked.Load() == nil {
		if g, err := q.ask(ctx, req, t); g != nil || err != nil {
			return g, err
		}
	}
	q.waits(req.Key, t)
	if req.OnWait != nil {
		req.OnWait(t.locked.Load())
	}
	select {
	case t.taken <- struct{}{}:
		defer func() { <-t.taken }()
	case <-ctx.Done():
		return nil, backend.NotExecuted(ctx.Err())
	}
	return q.first(ctx, req, t, began)
}

// ask makes one attempt before the turn of its waiter, or waits for that of another waiter. It returns neither a grant
// nor an error if the key is locked, or if the caller is to ask again: the other waiter has given up.
func (q *Queue) ask(ctx context.Context, req backend.Request, t *turn) (backend.Grant, error) {
	a, mine := q.asking(t)
	if !mine {
		select {
		case <-a.ended:
			return nil, a.err
		case <-ctx.Done():
			return nil, backend.NotExecuted(ctx.Err())
		}
	}
	g, err := q.Locks.try(ctx, req, true)
	switch {
	case err == nil:
		t.granted(req, g)
	case errors.Is(err, backend.ErrLocked):
		t.locked.Store(refusal(err))
		err = nil
	case ctx.Err() == nil && !backend.OutcomeUnknown(err):
		a.err = err
	}
	q.mu.Lock()
	t.asked = nil
	q.mu.Unlock()
	close(a.ended)
	return g, err
}

// asking returns the attempt that is under way before the turn of a waiter, or a new one, which is the caller's.
func (q *Queue) asking(t *turn) (a *asked, mine bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if mine = t.asked == nil; mine {
		t.asked = &asked{ended: make(chan struct{})}
	}
	return t.asked, mine
}

// granted records a grant for those who wait for the end of it.
func (t *turn) granted(req backend.Request, g backend.Grant) {
	t.locked.Store(&backend.LockedError{Holder: backend.Holder{
		Contender: backend.Contender{Owner: req.Owner, Metadata: req.Metadata}, Token: g.Token(), Left: req.TTL,
	}})
}

// refusal returns the holder for which a request was refused, without a name if others were faster.
func refusal(err error) *backend.LockedError {
	locked := &backend.LockedError{}
	_ = errors.As(err, &locked)
	return locked
}

// first waits as the waiter that has the turn, and began to wait before.
func (q *Queue) first(ctx context.Context, req backend.Request, t *turn, began time.Time) (backend.Grant, error) {
	err := backend.ErrLocked
	unknown := false // a request may have been executed
	polls := backoff{}
	wants := patient{began: began}
	for {
		if !t.current || t.changes == nil {
			var g backend.Grant
			if g, err = q.attempt(ctx, req, t, &wants); err == nil {
				return g, nil
			}
		}
		pause := retryPause
		switch {
		case t.current:
			unknown = unknown && (errors.Is(err, ErrChanged) || !t.at.Held) // a record of another holder refuses earlier requests
			if !t.fresh {
				pause = polls.next(q, t.at.state(q.Locks.process))
			}
			if left := time.Until(t.due); left > 0 {
				pause = min(pause, left)
			}
		case time.Since(t.failing) > req.TTL, errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrClosed):
			return nil, waitError(err, nil, unknown)
		default:
			unknown = unknown || backend.OutcomeUnknown(err)
		}
		t.next(ctx, pause, t.at.before(q.Locks.process))
		if end := ctx.Err(); end != nil {
			return nil, waitError(err, end, unknown)
		}
	}
}

// backoff is the interval of a waiter's reads.
type backoff struct {
	seen     state
	interval time.Duration
}

// state is what a waiter has read.
type state struct {
	owner  string // of the holder, or who has released the record
	held   bool
	before int // so many processes are before it
}

func (v *value) state(process string) state { return state{v.Owner, v.Held, v.before(process)} }

// next returns the pause before the next read, jittered by a half each way. It is longer behind other processes.
func (b *backoff) next(q *Queue, seen state) time.Duration {
	b.interval = min(2*b.interval, q.Poll)
	if b.interval == 0 || seen != b.seen {
		b.seen, b.interval = seen, min(cmp.Or(q.FastPoll, q.Poll)*time.Duration(1+seen.before), q.Poll)
	}
	return b.interval/2 + rand.N(b.interval)
}

// patient is a waiter that has no place yet.
type patient struct {
	began  time.Time
	holder string // that it has seen first
}

// joins reports whether the waiter has waited for long, or others have got the lock before it, and it may have a place.
func (p *patient) joins(v *value, process string) bool {
	if !v.joinable(process) {
		return false
	}
	p.holder = cmp.Or(p.holder, v.Owner)
	return p.holder != v.Owner || time.Since(p.began) >= placeAfter
}

// attempt reads the record, and takes it if it is free and the turn of this process. Else it may write the place of the process.
func (q *Queue) attempt(ctx context.Context, req backend.Request, t *turn, wants *patient) (g backend.Grant, err error) {
	t.current, t.at, t.due = false, look{}, time.Time{}
	if err = q.watch(ctx, req.Key, t); err == nil {
		g, t.at, err = q.Locks.attempt(ctx, req, true)
	}
	if t.at.left > 0 {
		t.due = time.Now().Add(t.at.left)
	}
	if errors.Is(err, backend.ErrLocked) {
		t.locked.Store(refusal(err))
		if wants.joins(&t.at.value, q.Locks.process) {
			version, failed := q.Locks.join(ctx, req.Key, t.at, t.line.turn)
			if t.at.item.Version = version; failed != nil && !errors.Is(failed, ErrChanged) {
				err = failed
			}
		}
	}
	switch {
	case err == nil:
		t.granted(req, g)
		t.current, t.failing = true, time.Time{}
	case errors.Is(err, backend.ErrLocked):
		t.current, t.failing = true, time.Time{}
	case errors.Is(err, ErrChanged):
		t.locked.Store(refusal(err))
		t.current, t.failing = true, time.Time{}
	case t.failing.IsZero():
		t.failing = time.Now()
	}
	return g, err
}

// next waits for a change that this process has not read, or until the pause or ctx ends. Behind other processes it leaves the
// service to them for a moment: it is not the turn of this one yet, and several changes are read at once.
func (t *turn) next(ctx context.Context, pause time.Duration, before int) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	released := t.line.released
	if t.changes != nil {
		released = nil // the change comes
	}
	for changed := false; ; {
		select {
		case version, ok := <-t.changes:
			if ok && (changed || version == t.at.item.Version) {
				continue
			}
			t.current, t.fresh = false, false
			if changed = ok && before > 0; changed {
				timer.Reset(min(pause, time.Duration(before)*behind))
				continue
			}
			if !ok {
				t.changes = nil // watched again
			}
		case <-released:
			t.current = false
		case <-timer.C:
			t.current, t.fresh = false, false
		case <-ctx.Done():
		}
		return
	}
}

// watch begins to watch the key, unless it is watched.
func (q *Queue) watch(ctx context.Context, key string, t *turn) (err error) {
	if q.Watch == nil || t.changes != nil {
		return nil
	}
	if t.stop != nil {
		t.stop()
	}
	t.changes, t.stop, err = q.Watch(ctx, key)
	if err != nil {
		t.changes, t.stop = nil, nil
		return backend.NotExecuted(err)
	}
	t.fresh = true
	return nil
}

// join counts a waiter.
func (q *Queue) join(key string) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turns == nil {
		q.turns = map[string]*turn{}
	}
	t := q.turns[key]
	if t == nil {
		t = &turn{}
		q.turns[key] = t
	}
	t.waiters++
	return t
}

// waits makes what only a turn with attempts that were refused needs.
func (q *Queue) waits(key string, t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.line == nil {
		t.taken, t.line = make(chan struct{}, 1), q.Locks.seen.wait(key, q.turn())
	}
}

// turn returns for how long a free record is left to this process, which may read it only at its next poll.
func (q *Queue) turn() time.Duration {
	if q.Watch != nil {
		return shortestTurn
	}
	return min(max(shortestTurn, 2*q.Poll), longestTurn)
}

// leave ends the watch with the last waiter.
func (q *Queue) leave(key string, t *turn) (last bool) {
	q.mu.Lock()
	t.waiters--
	if last = t.waiters == 0; last {
		delete(q.turns, key)
		if t.line != nil {
			q.Locks.seen.forgo(key)
		}
	}
	q.mu.Unlock()
	if last && t.stop != nil {
		t.stop()
	}
	return last
}

func waitError(err, end error, unknown bool) error {
	if end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", err, end)
	}
	if unknown || backend.OutcomeUnknown(err) {
		return backend.Uncertain(err)
	}
	return backend.NotExecuted(err)
}
