package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	maxAnswered = 1 << 16 // entries of Backend.answered
	maxMisses   = 5       // requests in a row after which an attempt is not in the queue
)

// ErrQueueFull is the error of a Lock whose queue has 1 MiB of waiters, about 10,000.
var ErrQueueFull = errors.New("mysql: the queue of this lock is full (1 MiB)")

// attempt is one call of TryAcquire or Acquire.
type attempt struct {
	b          *Backend
	req        backend.Request
	unanswered bool // a request had no answer: the server may execute it later

	// For Acquire:
	waiter      *waiter // nil without a notifier
	queued      bool    // the attempt has been in the queue
	request     bool    // the next look is a request, not a read
	misses      int
	failedSince time.Time // first failure since the last answer
	polls       pollSchedule
}

// TryAcquire sends one request to acquire. It does not enter the queue.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	a := &attempt{b: b, req: req}
	s, err := a.send(ctx, false)
	if err != nil {
		return nil, err
	}
	if !s.heldBy(req.Owner) {
		return nil, &backend.LockedError{Holder: s.holder()}
	}
	return a.grant(s), nil
}

// send sends one request to acquire.
func (a *attempt) send(ctx context.Context, join bool) (rowState, error) {
	s, err := a.b.request(ctx, a.req, join)
	switch {
	case err != nil:
		a.unanswered = a.unanswered || errors.Is(err, backend.ErrUncertain)
	case s.abandoned:
		err = fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	}
	return s, err
}

func (a *attempt) grant(s rowState) *grant {
	return &grant{b: a.b, req: a.req, token: s.token, unanswered: a.unanswered, until: s.sent.Add(min(s.left(), a.req.TTL))}
}

// Acquire acquires the key. It waits in the queue until the key is granted or ctx ends.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	a := &attempt{b: b, req: req, request: true}
	a.polls.max = min(250*time.Millisecond, max(req.TTL/8, minPoll))
	a.waiter = b.notifier.register(req.Key, req.Owner, a.polls.max)
	defer a.waiter.unregister()
	g, err := a.wait(ctx)
	if err != nil {
		if errors.Is(err, backend.ErrUncertain) && !a.unanswered {
			b.rememberAnswered(req.Owner)
		}
		return nil, err
	}
	return g, nil
}

// wait looks at the row and pauses in turn, until it returns a grant or an error.
func (a *attempt) wait(ctx context.Context) (*grant, error) {
	var pushed *rowState
	for {
		s, err := a.look(ctx, pushed)
		if err == nil {
			a.failedSince = time.Time{}
		}
		var g *grant
		var delay time.Duration
		switch {
		case err != nil:
			delay, err = a.retry(ctx, err)
		case s.heldBy(a.req.Owner):
			g, delay = a.accept(ctx, s)
		default:
			delay, err = a.next(s)
		}
		if g != nil || err != nil {
			return g, err
		}
		if pushed, err = a.pause(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// look returns the row that the watcher pushed, or asks the server. An attempt in the queue
// waits at most its TTL for the answer.
func (a *attempt) look(ctx context.Context, pushed *rowState) (rowState, error) {
	if pushed != nil {
		return *pushed, nil
	}
	bounded := ctx
	limit := max(a.req.TTL, 100*time.Millisecond)
	if a.queued {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var s rowState
	var err error
	if a.request {
		s, err = a.send(bounded, true)
	} else {
		s, err = a.b.read(bounded, a.req)
	}
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = backend.Uncertain(fmt.Errorf("mysql%s: no answer within %v", a.b.address, limit)) // not the deadline of the caller
		a.unanswered = true
	}
	return s, err
}

// retry returns the delay after a failure, or the error of the attempt: that of ctx, a
// permanent one, or err when the service has failed for the TTL. Before the attempt is in
// the queue only a rolled back statement is sent again.
func (a *attempt) retry(ctx context.Context, err error) (time.Duration, error) {
	if a.failedSince.IsZero() {
		a.failedSince = time.Now()
	}
	final := time.Since(a.failedSince) >= a.req.TTL || errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrClosed) ||
		!a.queued && !rolledBack(err)
	switch {
	case ctx.Err() != nil:
		return 0, a.interrupted(ctx.Err())
	case final && !a.queued && !a.unanswered:
		return 0, err
	case final:
		return 0, stillUncertain(backend.ErrUncertain, err)
	}
	return a.polls.backoff(), nil
}

// accept returns the grant of s. If little is left of a provisional lease, accept renews it
// first; if that fails, it returns the delay until the next request.
func (a *attempt) accept(ctx context.Context, s rowState) (*grant, time.Duration) {
	g := a.grant(s)
	if s.left() >= min(a.req.TTL, provisionalTTL)/2 {
		return g, 0
	}
	if g.Renew(ctx, a.req.TTL) == nil {
		return g, 0
	}
	a.request = true
	return nil, a.polls.backoff()
}

// next returns the delay until the next look of an attempt that does not hold the key, or a
// negative one if the watcher of the key wakes it.
func (a *attempt) next(s rowState) (time.Duration, error) {
	switch {
	case s.place == 0 && !a.request: // the attempt missed its turn, or the row was deleted
		a.request = true
		return 0, nil
	case s.place == 0: // the queue is full, or the attempt missed its turn
		if a.misses++; a.misses < maxMisses {
			return a.polls.backoff(), nil
		}
		if a.unanswered {
			return 0, backend.Uncertain(ErrQueueFull)
		}
		return 0, backend.NotExecuted(ErrQueueFull)
	}
	a.misses = 0
	if !a.queued && a.req.OnWait != nil {
		a.req.OnWait(&backend.LockedError{Holder: s.holder()})
	}
	a.queued = true
	delay, request := a.polls.next(s)
	if a.waiter.watch(s) && s.held() { // else the first waiter has to request the key
		delay, request = -1, false
	}
	a.request = request
	return delay, nil
}

// pause waits for the delay, or without end if it is negative, and for news of the watcher,
// which it returns.
func (a *attempt) pause(ctx context.Context, delay time.Duration) (*rowState, error) {
	var timer <-chan time.Time
	if delay >= 0 {
		timer = time.After(delay)
	}
	var news chan *rowState
	if a.waiter != nil {
		news = a.waiter.news
	}
	select {
	case <-timer:
		return nil, nil
	case s := <-news:
		a.request = a.request && s != nil
		return s, nil
	case <-ctx.Done():
		return nil, a.interrupted(ctx.Err())
	case <-a.b.life.Done():
		return nil, a.interrupted(backend.ErrClosed)
	}
}

// interrupted returns the error of an attempt that err ended.
func (a *attempt) interrupted(err error) error {
	if !a.queued && !a.unanswered {
		return backend.NotExecuted(err)
	}
	return backend.Uncertain(err)
}

// rememberAnswered records that no request of an attempt is in flight.
func (b *Backend) rememberAnswered(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.answered) >= maxAnswered {
		clear(b.answered) // harmless: Abandon writes a tombstone for each of them
	}
	b.answered[owner] = struct{}{}
}

// Abandon removes everything that remains of an attempt. It writes a tombstone, which refuses
// later requests of the attempt, unless each of its requests is known to be answered.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	if err := checkOwner(req.Owner); err != nil {
		return err
	}
	b.mu.Lock()
	_, answered := b.answered[req.Owner]
	b.mu.Unlock()
	_, err := b.leaveRow(ctx, req.Owner, b.abandon(req, !answered))
	if err == nil {
		b.mu.Lock()
		delete(b.answered, req.Owner)
		b.mu.Unlock()
	}
	return err
}
