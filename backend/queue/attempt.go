package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// state is that of an attempt. The table in the package documentation says what an event does in each.
type state uint8

const (
	waiting state = iota
	revoked       // it waits, and a grant of it was broken before it knew of that
	holding
	ended // its grant was released or lost, or it has none and does not wait
)

// place is where an attempt is in the queue of the service, as far as the attempt knows.
type place uint8

const (
	outside place = iota // it has not been there
	queued
	dropped // it was there, and the service may have removed it
)

// attempt is one attempt to acquire a key. If it holds, it is the backend.Grant.
type attempt struct {
	b          *Backend
	req        backend.Request
	line       *line       // while it waits
	unanswered atomic.Bool // a request had no answer: the service may still execute it

	// The following are guarded by b.mu.
	state    state
	place    place
	turn     bool                 // it is to send a request now
	wanted   bool                 // it is in the list of those that get a turn
	doubted  bool                 // it has asked once more because of a revoked grant
	wake     chan struct{}        // capacity 1; made before it begins to wait
	failure  error                // ends it
	behind   *backend.LockedError // it waits behind others, and OnWait was not called; else nil
	seen     time.Time            // when the request was sent of which the answer showed it in the queue
	notified time.Time            // when a grant was pushed to it

	// grant, from when it holds
	token uint64
	slots []int
	mu    sync.Mutex // guards until and sent
	until time.Time
	sent  time.Time // of the request that until is counted from
}

// ask sends one request.
func (a *attempt) ask(ctx context.Context, m Mode) (Answer, error) {
	r, err := a.b.svc.Acquire(ctx, Attempt{Request: a.req, Mode: m})
	switch {
	case err == nil && r.Refused:
		err = fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	case err != nil && backend.OutcomeUnknown(err):
		a.unanswered.Store(true)
	}
	a.b.PassIn(a.req.Key, r.Pass)
	return r, err
}

// acquire returns nil when the attempt holds its key.
func (a *attempt) acquire(ctx context.Context) error {
	for {
		a.b.mu.Lock()
		state, failure, turn, behind := a.state, a.failure, a.turn, a.behind
		a.behind = nil
		a.b.mu.Unlock()
		if behind != nil && a.req.OnWait != nil {
			a.req.OnWait(behind)
		}
		switch {
		case state == holding:
			return nil
		case state == ended: // granted, and lost, before this call could return
			return backend.Uncertain(backend.ErrLost)
		case failure != nil:
			return failure
		case turn:
			err := a.poll(ctx)
			a.line.endTurn(a)
			if err != nil {
				return err
			}
			continue
		}
		select {
		case <-a.wake:
		case <-ctx.Done():
			return a.interrupted(ctx.Err())
		case <-a.b.life.Context().Done():
			return a.interrupted(backend.ErrClosed)
		}
	}
}

// poll asks for the key. The attempt enters the queue only if its events would arrive, or if there are none at all; a
// free key costs one round trip in either case. An error ends the attempt.
func (a *attempt) poll(ctx context.Context) error {
	m, p := Join, a.b.pusher
	a.b.mu.Lock()
	polls, place := a.line.polls, a.place
	a.b.mu.Unlock()
	switch {
	case p != nil && !polls && !p.Listening(a.req.Key):
		m = NoQueue
	case place != outside:
		m = Expect
	}
	r, err := a.askWithin(ctx, m, place != outside)
	switch {
	case err != nil:
		return a.failed(ctx, err)
	case r.Granted:
		a.granted(m, r)
		return nil
	case m != NoQueue:
		a.waits(m, r)
		return nil
	}
	switch err = p.Listen(ctx, a.req.Key); {
	case errors.Is(err, ErrPoll):
		a.line.setPolls()
	case err != nil:
		return a.failed(ctx, err)
	}
	return a.poll(ctx)
}

// askWithin is ask. A request of an attempt that has a place takes as long as an outage may.
func (a *attempt) askWithin(ctx context.Context, m Mode, placed bool) (Answer, error) {
	if !placed {
		return a.ask(ctx, m)
	}
	limit := max(a.req.TTL, 100*time.Millisecond)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := a.ask(within, m)
	if err != nil && call.Ended(within) != nil && call.Ended(ctx) == nil {
		err = backend.Uncertain(fmt.Errorf("no answer within %v", limit)) // not the deadline of the caller
	}
	return r, err
}

// granted handles an answer that the attempt holds the key.
func (a *attempt) granted(m Mode, r Answer) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.checkDelivery(m, r)
	switch {
	case a.state == ended:
		return
	case a.state == revoked && !a.doubted: // once: false events do not keep Acquire from returning
		a.doubted = true
		a.line.want(a)
		return
	}
	a.state = holding
	a.line.holder = backend.Holder{Token: r.Token, Slots: r.Slots}
	a.line.holder.Contender = backend.Contender{Owner: a.req.Owner, Metadata: a.req.Metadata, Share: a.req.Share}
	a.line.clock.observe(r)
	a.line.granted(a, r.NoPlace)
	a.hold(r.Token, r.Slots, r.Sent, r.Sent.Add(min(r.Left, a.req.TTL)))
}

// waits handles an answer that the attempt has a place in the queue.
func (a *attempt) waits(m Mode, r Answer) {
	a.b.mu.Lock()
	first := a.place == outside
	if a.state == waiting || a.state == revoked {
		a.checkDelivery(m, r)
		a.line.waits(a, r)
	}
	a.b.mu.Unlock()
	if first && a.req.OnWait != nil {
		a.req.OnWait(&backend.LockedError{Holder: r.Holder})
	}
}

// hold makes the attempt a grant that the service keeps until then, according to what it sent in answer to a request
// of the time sent, or as an event.
func (a *attempt) hold(token uint64, slots []int, sent, until time.Time) {
	a.token, a.slots = token, slots
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent, a.until = sent, until
}

// fail ends an attempt that waits. b.mu is held.
func (a *attempt) fail(err error) {
	if a.failure == nil {
		a.failure = err
		a.signal()
	}
}

// failed returns nil if the attempt asks again after an error.
func (a *attempt) failed(ctx context.Context, err error) error {
	if e := call.Ended(ctx); e != nil {
		return a.interrupted(e)
	}
	if errors.Is(err, errFinal) {
		return err
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.state == holding || a.state == ended { // by an event
		return nil
	}
	since := a.line.failed(a, err)
	tooLong := since >= a.req.TTL
	switch {
	case errors.Is(err, backend.ErrInvalid) && a.place == outside && !a.unanswered.Load():
		return err
	case a.place == outside && (tooLong || a.unanswered.Load() || !errors.Is(err, errRetry)):
		a.line.failTurns(a, err)
		if a.unanswered.Load() {
			return backend.Uncertain(err)
		}
		return backend.NotExecuted(err)
	case tooLong, errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrClosed):
		a.line.again(a) // for the others
		return backend.Uncertain(err)
	}
	a.line.again(a)
	return nil
}

// interrupted returns the error of an attempt that ends without a grant.
func (a *attempt) interrupted(err error) error {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.place != outside || a.unanswered.Load() {
		return backend.Uncertain(err)
	}
	return backend.NotExecuted(err)
}

// checkDelivery doubts the events if an answer shows what an event should have said. b.mu is held.
func (a *attempt) checkDelivery(m Mode, r Answer) {
	if m != Expect || a.b.pusher == nil || !r.NoPlace {
		return
	}
	seen := a.seen
	check := func(context.Context) {
		a.b.mu.Lock()
		silent := !a.notified.After(seen)
		a.b.mu.Unlock()
		if silent {
			a.b.pusher.Doubt(a.req.Key)
		}
	}
	if !r.Granted {
		a.b.background(check)
		return
	}
	time.AfterFunc(pushDelay, func() { a.b.background(check) }) // it may be on its way
}

// signal makes acquire look at the attempt. b.mu is held.
func (a *attempt) signal() {
	select {
	case a.wake <- struct{}{}:
	default: // it will look; or it does not wait yet, and will look before it does
	}
}

var (
	errFinal = errors.New("the attempt has ended")
	errRetry = errors.New("the service asks to try again")
)

type marked struct{ error, mark error }

func (m marked) Error() string   { return m.error.Error() }
func (m marked) Unwrap() []error { return []error{m.error, m.mark} }

// Final marks an error of [Service.Acquire] that ends the attempt, also if it has a place in the queue.
func Final(err error) error { return marked{err, errFinal} }

// Retry marks an error of [Service.Acquire] that goes away soon: an attempt without a place in the queue asks again,
// unless the outcome of one of its requests is not known. Any other error ends such an attempt. One with a place asks
// again after every error but ErrInvalid and ErrClosed. Both end when requests have failed for as long as their TTL.
func Retry(err error) error { return marked{err, errRetry} }
