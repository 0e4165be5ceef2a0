package lock

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

// asking is one attempt at the backend.
type asking struct {
	o      *handOff
	ln     *line
	req    backend.Request
	sent   time.Time // before it was
	cancel context.CancelFunc

	locked *LockedError // who held the key when the attempt began to wait,
	waited time.Time    // which was then
	chain  *chain       // what came of it
	lost   error        // pushed before there was a chain
}

func (a *asking) run(ctx context.Context) {
	c := a.o.c
	defer c.done()
	defer a.cancel()
	g, err := c.b.(backend.Waiter).Acquire(ctx, a.req)
	var ch *chain
	if err == nil {
		ch = newChain(a, g)
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	if err != nil {
		a.failedLocked(err)
		return
	}
	a.ln.asking = nil
	w := a.ln.headLocked()
	if w == nil { // it was not cancelled in time
		c.cleanUp(a.req, a.req.TTL+margin(a.req.TTL), "release of a grant that nobody waits for", g.Release)
		a.ln.tidyLocked()
		return
	}
	ch.beginLocked(a.ln, a, w)
}

// failedLocked tells those for whom the attempt was made, and asks again for those who
// have come since.
func (a *asking) failedLocked(err error) {
	ln := a.ln
	ln.asking = nil
	told := false
	for e := ln.waiters.Front(); e != nil; {
		w := e.Value.(*inLine)
		e = e.Next()
		if w.asked || w.leaving {
			told = true
			ln.serveLocked(w, loanResult{err: &otherAttempt{err, a.req}})
		}
	}
	if !told && errors.Is(err, ErrUncertain) {
		a.o.abandonLater(a.req)
	}
	ln.askLocked()
	ln.tidyLocked()
}

// waits tells all in line who holds the key.
func (a *asking) waits(locked *LockedError) {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	if locked == nil {
		locked = &LockedError{}
	}
	locked = &LockedError{Holder: locked.Holder}
	a.o.showingLocked(a.req.Key)(&locked.Holder)
	a.locked, a.waited = locked, time.Now()
	for e := a.ln.waiters.Front(); e != nil; e = e.Next() {
		e.Value.(*inLine).tellLocked(locked)
	}
}

// lose is told by the backend that the grant is gone, perhaps before it is known here.
func (a *asking) lose(reason error) {
	if reason == nil {
		reason = ErrLost
	}
	a.o.mu.Lock()
	ch := a.chain
	if ch == nil {
		if a.lost == nil {
			a.lost = reason
		}
		a.o.mu.Unlock()
		return
	}
	tell := ch.loseLocked()
	a.o.mu.Unlock()
	if tell != nil {
		tell(reason)
	}
}

// otherAttempt is an error of an attempt that was made for several: what is to be
// abandoned is that one.
type otherAttempt struct {
	error
	req backend.Request
}

func (e *otherAttempt) Unwrap() error { return e.error }

// lockedNow is what is known of the holder by now.
func (a *asking) lockedNow() *LockedError {
	h, since := a.locked.Holder, time.Since(a.waited)
	h.Left = max(h.Left-since, 0)
	if h.Age > 0 {
		h.Age += since
	}
	return &LockedError{Holder: h}
}
