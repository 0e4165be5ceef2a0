package handoff

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/trust"
)

// attempt is one attempt at the inner backend, with the owner id of the request that was
// at the head of the queue. It outlives that request: a client keeps its place in the
// queue of the backend while any of its requests waits.
type attempt struct {
	b      *Backend
	q      *localQueue
	req    backend.Request
	cancel context.CancelFunc

	// Guarded by b.mu.
	locked   *backend.LockedError // the holder at the time lockedAt; nil until the attempt waits
	lockedAt time.Time
	grant    *sharedGrant // the result
	lost     error        // a loss that was pushed before there was a grant
}

func (a *attempt) run(ctx context.Context) {
	defer a.b.cleaner.Tasks.Done()
	defer a.cancel()
	began := trust.Now()
	g, err := a.b.waiter.Acquire(ctx, a.req)
	var s *sharedGrant
	if err == nil {
		s = newSharedGrant(a, g, began)
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if err != nil {
		a.failLocked(err)
		return
	}
	a.q.attempt = nil
	w := a.q.headLocked()
	if w == nil { // the cancellation came too late
		a.b.release(g, a.req, "release of a grant without a waiter")
		a.q.forgetLocked()
		return
	}
	s.beginLocked(a.q, a, w)
}

// failLocked returns err to the requests for which the attempt was sent, and sends another
// attempt for those that came later.
func (a *attempt) failLocked(err error) {
	q := a.q
	q.attempt = nil
	returned := false
	for e := q.requests.Front(); e != nil; {
		w := e.Value.(*localRequest)
		e = e.Next()
		if w.sent || w.leaving {
			returned = true
			q.serveLocked(w, turnResult{err: &sharedError{err, a.req}})
		}
	}
	if !returned && backend.OutcomeUnknown(err) {
		a.b.cleaner.Abandon(a.req)
	}
	q.sendLocked()
	q.forgetLocked()
}

// onWait passes the holder of the key to all requests of the queue.
func (a *attempt) onWait(locked *backend.LockedError) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	out := &backend.LockedError{}
	if locked != nil {
		out.Holder = locked.Holder
	}
	a.b.translatorLocked(a.req.Key)(&out.Holder)
	a.locked, a.lockedAt = out, time.Now()
	for e := a.q.requests.Front(); e != nil; e = e.Next() {
		e.Value.(*localRequest).notifyWaitLocked(out)
	}
}

// lockedNowLocked returns a.locked with the times of now.
func (a *attempt) lockedNowLocked() *backend.LockedError {
	h, since := a.locked.Holder, time.Since(a.lockedAt)
	h.Left = max(h.Left-since, 0)
	if h.Age > 0 {
		h.Age += since
	}
	return &backend.LockedError{Holder: h}
}

// onLost ends the shared grant. The backend may call it before the grant is known here.
func (a *attempt) onLost(reason error) {
	if reason == nil {
		reason = backend.ErrLost
	}
	a.b.mu.Lock()
	if a.grant == nil {
		if a.lost == nil {
			a.lost = reason
		}
		a.b.mu.Unlock()
		return
	}
	notify := a.grant.loseLocked()
	a.b.mu.Unlock()
	if notify != nil {
		notify(reason)
	}
}
