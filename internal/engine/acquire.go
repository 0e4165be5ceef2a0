package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/task"
	"github.com/interlock-go/lock/internal/trust"
)

// errPanicked is reported for a call that a panic has ended.
var errPanicked = errors.New("the backend or an observer panicked")

// errTooLate is matched by the error of a grant that had expired when its reply arrived, or may have.
var errTooLate = errors.New("granted too late")

var errGrantExpired = fmt.Errorf("%w: the answer took as long as the lease; use a longer TTL", errTooLate)

// Acquire obtains a lease. If wait is set, it waits until the key is granted, the wait limit
// is reached or ctx ends; else it makes one attempt, which is bounded by tryTimeout. op is that
// of its events, which count from start. A lease outlives ctx.
func (m *Mutex) Acquire(ctx context.Context, op string, wait bool, start time.Time) (*Lease, error) {
	a := &attempt{m: m, op: op, start: start, values: ctx}
	returned := false
	defer func() {
		if !returned {
			a.reportFailed(errPanicked)
		}
	}()
	l, err := a.acquire(ctx, wait)
	returned = true
	if err != nil {
		a.reportFailed(err)
	}
	return l, err
}

// attempt is one call of Acquire. It sends several requests to the backend if one is
// granted too late, or if the backend has no queue. Each has an owner id of its own.
type attempt struct {
	m      *Mutex
	op     string
	start  time.Time
	values context.Context // of the caller: for the lease and for events
	task   task.Wait
	id     [16 + 32]byte // see newOwner

	mu      sync.Mutex           // guards the fields below
	locked  *backend.LockedError // the holder, as far as it is known; nil before the wait
	overdue *time.Timer          // of a wait without a limit
	ended   bool                 // the result has been reported
}

// acquire returns a nested lease if ctx has one of the same key. Otherwise it asks the
// backend. Closing waits for it, and ends it.
func (a *attempt) acquire(ctx context.Context, wait bool) (*Lease, error) {
	e := a.m.engine
	if ctx.Err() != nil {
		return nil, retry.ContextError(ctx)
	}
	if h, _ := ctx.Value(a.m.heldKey).(*heldGrant); h != nil && h.endCause() == nil {
		if l, err := a.nest(ctx, h); l != nil || err != nil {
			return l, err
		} // else the grant has just ended
	}
	if limit := a.m.params.Wait; wait && limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = retry.WithWaitLimit(ctx, limit)
		defer cancel()
	}
	if !e.tasks.BeginWait(ctx, &a.task) {
		return nil, backend.ErrClosed
	}
	defer a.task.Done()
	l, err := a.request(&a.task.Context, wait)
	if err != nil && e.tasks.Closing().Err() != nil && ctx.Err() == nil {
		return nil, closedError(err)
	}
	return l, err
}

// nest adds a lease to the grant of the same key that ctx has. It returns nil if the grant
// has ended.
func (a *attempt) nest(ctx context.Context, h *heldGrant) (*Lease, error) {
	l := &Lease{held: h, values: ctx, nested: true}
	h.mu.Lock()
	defer h.mu.Unlock()
	share := a.m.params.Share
	switch {
	case h.cause != nil:
		return nil, nil
	case !h.share.Includes(share):
		return nil, fmt.Errorf("%w by this very context for %s, and would wait for itself for %s: unlock the lease that it has first", backend.ErrLocked, h.share, share)
	case !a.m.params.Reentrant:
		return nil, fmt.Errorf("%w by this very context, which would wait for itself; WithReentry allows nesting", backend.ErrLocked)
	}
	h.leases = append(h.leases, l)
	return l, nil
}

// request sends requests until one is granted in time. A grant that comes too late may be
// chance, but three in sequence mean that the TTL is too short for the backend.
func (a *attempt) request(ctx context.Context, wait bool) (*Lease, error) {
	once := a.try
	if wait && a.m.engine.waiter == nil {
		once = a.poll
	} else if wait {
		once = a.wait
	}
	for tries := 1; ; tries++ {
		if wait && !a.m.engine.cfg.Cleaner.Await(ctx, a.m.params.Key, a.m.params.TTL) { // a waiter tolerates an outage of the TTL
			return nil, fmt.Errorf("%w; not sent, since an earlier attempt is not cleaned up: the service does not answer", retry.ContextError(ctx))
		}
		l, err := once(ctx)
		if !errors.Is(err, errTooLate) || !wait || tries == 3 {
			return l, err
		}
	}
}

// wait waits in the queue of the backend.
func (a *attempt) wait(ctx context.Context) (*Lease, error) {
	req, relay := a.newRequest()
	req.OnWait = a.reportWaiting
	returned := false
	defer func() {
		if !returned { // an observer panicked; the request may be in the queue or granted
			a.m.engine.cfg.Cleaner.AbandonAndWait(req)
		}
	}()
	began := trust.Now()
	g, err := a.m.engine.waiter.Acquire(ctx, req)
	returned = true
	if err != nil {
		return nil, a.acquireFailed(ctx, req, err)
	}
	from := trust.Now() // the grant may be pushed
	if !g.Until().IsZero() && began.SuspendedBy(from.Time) > 0 {
		if from, err = a.confirm(ctx, req, g); err != nil {
			return nil, err
		}
	}
	return a.accept(req, relay, g, from)
}

// confirm renews a grant whose request was under way while the machine was suspended: the end of the
// grant may count from before that, on a clock that stood still. It returns the instant from which
// the grant counts then. A grant that cannot be renewed is released.
func (a *attempt) confirm(ctx context.Context, req backend.Request, g backend.Grant) (trust.Instant, error) {
	bound, cancel := context.WithTimeout(ctx, tryTimeout(req.TTL))
	defer cancel()
	sent := trust.Now()
	err := g.Renew(bound, req.TTL)
	if err == nil {
		return sent, nil
	}
	const what = "release of a grant that was not confirmed after a suspension"
	a.m.engine.cfg.Cleaner.Release(req, req.TTL+trust.Margin(req.TTL), what, g.Release)
	if ctx.Err() != nil {
		return sent, a.endedBy(ctx)
	}
	why := err.Error() // it may match ErrLost, and the caller had no lease to lose
	return sent, fmt.Errorf("%w: the machine was suspended meanwhile, and the lease could not be renewed: %s", errTooLate, why)
}

// tryTimeout bounds a request that does not wait: a reply that takes as long as the lease
// makes no lease.
func tryTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/2, 100*time.Millisecond), 10*time.Second)
}

// try sends one request that does not wait.
func (a *attempt) try(ctx context.Context) (*Lease, error) {
	req, relay := a.newRequest()
	var within call.Context
	within.Init(ctx, ctx, time.Now().Add(tryTimeout(req.TTL)))
	defer within.End(context.Canceled)
	sent := trust.Now()
	g, err := a.m.engine.cfg.Backend.TryAcquire(&within, req)
	if err != nil {
		return nil, a.acquireFailed(ctx, req, err)
	}
	return a.accept(req, relay, g, sent)
}

func (a *attempt) newRequest() (backend.Request, *lossRelay) {
	relay := &lossRelay{engine: a.m.engine}
	p := &a.m.params
	return backend.Request{Key: p.Key, Owner: a.newOwner(), Share: p.Share, TTL: p.TTL, Metadata: p.Metadata, OnLost: relay.report}, relay
}

// newOwner returns a random id.
func (a *attempt) newOwner() string {
	const size = len(a.id) / 3    // the bytes, and then two digits for each
	_, _ = rand.Read(a.id[:size]) // never fails
	hex.Encode(a.id[size:], a.id[:size])
	return string(a.id[size:])
}

// sharedError is the error of a request that was sent for several requests.
type sharedError interface {
	error
	SharedRequest() backend.Request // the one that was sent
	Unwrap() error
}

// acquireFailed returns the error of a failed request for the caller. If the outcome is
// not known, it abandons the request first.
func (a *attempt) acquireFailed(ctx context.Context, req backend.Request, err error) error {
	var shared sharedError
	if errors.As(err, &shared) {
		req, err = shared.SharedRequest(), shared.Unwrap()
	}
	if backend.OutcomeUnknown(err) || retry.FromCause(ctx, err) {
		if a.m.engine.cfg.Cleaner.AbandonAndWait(req) {
			err = retry.Known(err, "; undone") // it certainly has no effect any more
		} else {
			err = backend.Uncertain(err)
		}
	}
	awaitDeadline(ctx)
	if ctx.Err() == nil {
		return retry.OwnTimeout(ctx, err)
	}
	// The error of the backend is added to that of the context if it says more.
	switch text := ctx.Err().Error(); {
	case err.Error() == text, err.Error() == text+"; undone":
		return a.endedBy(ctx)
	case err.Error() == backend.Uncertain(ctx.Err()).Error():
		return fmt.Errorf("%w; %w", a.endedBy(ctx), backend.ErrUncertain)
	}
	err = retry.OwnTimeout(ctx, err) // the deadline may be that of the wait limit
	if errors.Is(err, backend.ErrLocked) {
		return fmt.Errorf("%w; %w", retry.ContextError(ctx), err)
	}
	return fmt.Errorf("%w; %w", a.endedBy(ctx), err)
}

// awaitDeadline waits a moment for ctx to end if its deadline has passed: a socket may
// notice the deadline first.
func awaitDeadline(ctx context.Context) {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// endedBy returns the error of a wait that ctx has ended, with the holder of the key.
func (a *attempt) endedBy(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.locked == nil {
		return retry.ContextError(ctx)
	}
	return fmt.Errorf("%w; %w", retry.ContextError(ctx), a.locked)
}

// accept makes the lease of a grant. from is as in trust.Until.
func (a *attempt) accept(req backend.Request, relay *lossRelay, g backend.Grant, from trust.Instant) (*Lease, error) {
	e := a.m.engine
	now := time.Now()
	if g.Until().IsZero() {
		from = trust.Now() // the service counts no time: a fixed lease begins with its grant
	}
	h := &heldGrant{
		engine: e, params: &a.m.params, req: req, share: req.Share, grant: g, acquired: now,
		minHoldStart: now, ttl: req.TTL, serverUntil: now.Add(req.TTL),
	}
	if err := e.checkGrant(now, from, g, req.TTL); err != nil {
		h.releaseInBackground("release of a late grant")
		return nil, err
	}
	l := &h.first
	l.held, l.values = h, a.values
	h.leases = append(h.firstOnly[:0], l)
	if !e.register(h) {
		h.releaseInBackground("release of a grant to a closed client")
		return nil, backend.ErrClosed
	}
	h.start(from, a.isWaiting())
	relay.bind(h)
	returned := false
	defer func() {
		defer h.announce()
		if !returned && h.end(e.cfg.EndErr(req.Key, ErrReleased)) { // an observer panicked: the caller gets no lease
			h.releaseInBackground("release after a panic")
			h.reportEnd(a.values, Released, nil)
		}
	}()
	a.reportAcquired(h, now.Sub(a.start))
	returned = true
	return l, nil
}
