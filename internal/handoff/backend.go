// Package handoff lets requests of one client use a grant of the backend one after the
// other, without a round trip. docs/adr/0018-local-hand-off.md has the reasons.
//
// A local queue has the requests for one key with the same TTL and metadata, in order of
// arrival. A queue has at most one attempt at the inner backend in flight. A grant of an
// attempt is shared: the requests of the queue use it one after the other. Each use is a
// turn, and a turn is a backend.Grant.
package handoff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/cleanup"
	"github.com/interlock-go/lock/internal/trust"
)

// Bounds of a shared grant. They limit how long other clients wait for this one.
const (
	maxTurns   = 16                    // of a grant
	maxPassAge = 10 * time.Millisecond // an older grant is not passed on
)

// Backend is a backend.Waiter over a backend.Waiter.
type Backend struct {
	inner   backend.Backend
	waiter  backend.Waiter // inner
	caps    backend.Capabilities
	cleaner *cleanup.Cleaner

	mu     sync.Mutex // guards queues and all that belongs to a queue; no driver is called while it is held
	queues map[string][]*localQueue
}

// New returns a backend that shares the grants of inner, which has the capabilities caps. If
// inner has no queue of its own, New returns an error that matches errors.ErrUnsupported.
func New(inner backend.Backend, caps backend.Capabilities, cleaner *cleanup.Cleaner) (*Backend, error) {
	waiter, ok := backend.As[backend.Waiter](inner)
	if !ok {
		return nil, fmt.Errorf("local hand-off: %w by backend %s, which has no queue", errors.ErrUnsupported, caps.Name)
	}
	caps.Order = backend.Unordered
	caps.Caveats = append(slices.Clone(caps.Caveats),
		"With local hand-off a lock that is broken may be passed on once more before its holder is notified, with a token that is less than the successor's.",
		fmt.Sprintf("With local hand-off a grant is passed on within its client up to %d times while it is younger than %v: waiters of one client are served in the order of arrival, clients in the backend's.", maxTurns-1, maxPassAge),
		"With local hand-off fencing tokens are the backend's times 256 plus the number of the turn: all clients of a name must use it, or none. They exceed 2^53: compare them as 64-bit integers, not as doubles.")
	return &Backend{inner: inner, waiter: waiter, caps: caps, cleaner: cleaner, queues: map[string][]*localQueue{}}, nil
}

// Unwrap returns the inner backend.
func (b *Backend) Unwrap() backend.Backend { return b.inner }

// Capabilities returns those of the inner backend that local hand-off keeps.
func (b *Backend) Capabilities() backend.Capabilities { return b.caps }

// Close closes the inner backend.
func (b *Backend) Close(ctx context.Context) error { return b.inner.Close(ctx) }

// TryAcquire makes one attempt, unless a request of this client uses or awaits the key.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if !req.Share.Exclusive() {
		return b.acquireShare(ctx, req, b.inner.TryAcquire)
	}
	if err := b.lockedHere(req.Key); err != nil {
		return nil, err
	}
	a := &attempt{b: b, req: req}
	a.req.OnLost = a.onLost
	translate := b.translator(req.Key)
	began := trust.Now()
	g, err := b.inner.TryAcquire(ctx, a.req)
	if err != nil {
		return nil, translateLocked(err, translate)
	}
	s := newSharedGrant(a, g, began)
	w := &localRequest{req: req, result: make(chan turnResult, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.beginLocked(b.queueLocked(req), a, w)
	r := <-w.result
	return r.turn, r.err
}

// lockedHere returns an error that matches backend.ErrLocked if a request of this client
// waits for key, or uses a grant that is younger than maxPassAge. The backend is asked
// about an older grant, since it may have been lost.
func (b *Backend) lockedHere(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues[key] {
		switch {
		case q.grant != nil && (q.requests.Len() > 0 || time.Since(q.grant.created) < maxPassAge):
			return q.grant.lockedLocked()
		case q.requests.Len() > 0:
			return &backend.LockedError{}
		}
	}
	return nil
}

// Acquire waits in the local queue for a turn. A failure of the attempt of the queue fails
// all requests that were queued when it was sent. If the outcome of that attempt is not
// known, the error has a method SharedRequest, which returns the request to abandon.
//
// If req.OnWait panics, the caller must call Abandon.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if !req.Share.Exclusive() {
		return b.acquireShare(ctx, req, b.waiter.Acquire)
	}
	w := &localRequest{ctx: ctx, req: req, waits: make(chan *backend.LockedError, 1), result: make(chan turnResult, 1)}
	b.mu.Lock()
	q := b.queueLocked(req)
	w.elem = q.requests.PushBack(w)
	switch {
	case q.grant != nil:
		w.notifyWaitLocked(q.grant.lockedLocked())
	case q.attempt != nil && q.attempt.locked != nil:
		w.notifyWaitLocked(q.attempt.lockedNowLocked())
	}
	q.sendLocked()
	b.mu.Unlock()

	returned := false
	defer func() {
		if !returned {
			b.onPanic(q, w)
		}
	}()
	for {
		select {
		case r := <-w.result:
			if len(w.waits) > 0 { // OnWait first
				w.result <- r
				req.OnWait(<-w.waits)
				continue
			}
			returned = true
			return r.turn, r.err
		case locked := <-w.waits:
			req.OnWait(locked)
		case <-ctx.Done():
			returned = true
			return b.leave(ctx, q, w)
		}
	}
}

// leave removes a request whose context has ended. The last request of a queue cancels
// the attempt and returns what became of it.
func (b *Backend) leave(ctx context.Context, q *localQueue, w *localRequest) (backend.Grant, error) {
	b.mu.Lock()
	switch {
	case w.elem == nil: // it has been served meanwhile
	case q.attempt != nil && q.requests.Len() == 1:
		w.leaving = true
		q.attempt.cancel()
	default:
		q.removeLocked(w)
		b.mu.Unlock()
		return nil, backend.NotExecuted(ctx.Err())
	}
	b.mu.Unlock()
	r := <-w.result // a driver returns soon after its context has ended
	var shared *sharedError
	if errors.Is(r.err, context.Canceled) && errors.As(r.err, &shared) {
		// The attempt ended because this request left, so the reason is that of the request.
		if !backend.OutcomeUnknown(shared.error) {
			return nil, backend.NotExecuted(ctx.Err())
		}
		return nil, &sharedError{backend.Uncertain(ctx.Err()), shared.req}
	}
	return r.turn, r.err
}

// onPanic removes a request whose caller panicked. Abandon releases its turn, if it has
// one.
func (b *Backend) onPanic(q *localQueue, w *localRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.elem != nil {
		q.removeLocked(w)
		if q.requests.Len() == 0 && q.attempt != nil {
			q.attempt.cancel()
		}
		return
	}
	var shared *sharedError
	if r := <-w.result; errors.As(r.err, &shared) && backend.OutcomeUnknown(shared.error) {
		b.cleaner.Abandon(shared.req)
	}
}

// release releases a grant in the background.
func (b *Backend) release(g backend.Grant, req backend.Request, what string) {
	b.cleaner.Release(req, req.TTL+trust.Margin(req.TTL), what, g.Release)
}

// Abandon ends the turn of req.Owner, if it has one. If an attempt or a shared grant that
// other requests rely on has that owner id, it stays; else the inner backend abandons the
// request.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	switch own, used := b.usesOf(req); {
	case own != nil:
		if err := own.Release(ctx); !errors.Is(err, backend.ErrLost) {
			return err
		}
		return nil
	case used:
		return nil
	}
	return b.inner.Abandon(ctx, req)
}

// usesOf returns the turn of req.Owner, nil if it has none, and whether an attempt or a
// shared grant has that owner id.
func (b *Backend) usesOf(req backend.Request) (own *turn, used bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues[req.Key] {
		used = used || q.attempt != nil && q.attempt.req.Owner == req.Owner
		if q.grant != nil {
			used = used || q.grant.req.Owner == req.Owner
			if q.grant.turn.owner == req.Owner {
				own = q.grant.turn
			}
		}
	}
	return own, used
}

// AbandonBatch implements backend.BatchAbandoner as far as the inner backend does. It passes
// on what the inner backend is to abandon.
func (b *Backend) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	errs := make([]error, len(reqs))
	inner, ok := backend.As[backend.BatchAbandoner](b.inner)
	var batch []backend.Request
	var at []int // in errs
	for i, req := range reqs {
		own, used := b.usesOf(req)
		switch {
		case !ok:
			errs[i] = errors.ErrUnsupported
		case own != nil || used:
			errs[i] = b.Abandon(ctx, req)
		default:
			batch, at = append(batch, req), append(at, i)
		}
	}
	if len(batch) > 0 {
		for i, err := range inner.AbandonBatch(ctx, batch) {
			errs[at[i]] = err
		}
	}
	return errs
}

// sharedError is the error of an attempt that was made for several requests.
type sharedError struct {
	error
	req backend.Request // of the attempt
}

func (e *sharedError) Unwrap() error                  { return e.error }
func (e *sharedError) SharedRequest() backend.Request { return e.req }
