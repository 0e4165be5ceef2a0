package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/trust"
)

// releaseTimeout bounds the wait for the acknowledgement of a release.
const releaseTimeout = 5 * time.Second

// Release ends the lease, and releases the grant with its last lease.
func (l *Lease) Release(ctx context.Context) error {
	h, tasks := l.held, l.held.engine.tasks
	if !tasks.Begin() {
		if err := l.Err(); err != nil {
			return err
		}
		return backend.ErrClosed
	}
	defer tasks.Done()
	// The holder's context ends here, before the request that lets a successor in.
	cause, last := h.remove(l)
	if !last {
		return cause
	}
	var err error
	if left := h.minHoldLeft(); left > 0 {
		h.stopRenewal()
		err = h.keepForMinHold(ctx, left)
	} else {
		err = h.release(ctx)
		h.stopRenewal()
	}
	h.reportEnd(ctx, Released, err)
	return err
}

// release releases the grant of a lease that has just ended, under a context that is
// detached from the caller's. A release that is not acknowledged is sent again. ErrLost is
// success if a release that may have been executed, or the TTL, has freed the key: the work
// was done under the lock. After another failure ErrLost leaves open when the lock was
// lost: the result is ErrUncertain.
func (h *heldGrant) release(ctx context.Context) error {
	limit := releaseTimeout
	if h.engine.caps.Loss == backend.LossTTL {
		limit = min(limit, max(h.serverKeeps(), 100*time.Millisecond)) // then the service has freed it
	}
	deadline, working := time.Now().Add(limit), h.engine.tasks.Working()
	// The first request is nearly always the only one, so one context has both bounds.
	var first call.Context
	first.Init(ctx, working, time.Now().Add(min(limit, retry.Timeout(h.req.TTL))))
	err := h.grant.Release(&first)
	first.End(context.Canceled)
	if err == nil {
		return nil
	}
	err = retry.OwnTimeout(working, err)
	var detached call.Context
	detached.Init(ctx, working, deadline)
	defer detached.End(context.Canceled)
	pause := retry.Default()
	resent := false
	var failed error
	for {
		lost := errors.Is(err, backend.ErrLost)
		switch {
		case err == nil, lost && (resent || h.trustExpired()):
			return nil
		case lost && failed != nil:
			return backend.Uncertain(fmt.Errorf("the lock is not held any more (%s) after a failure: %w", err.Error(), failed))
		case lost, !retry.Transient(err):
			return err
		}
		failed = err
		resent = resent || backend.OutcomeUnknown(err)
		if !pause.Wait(&detached) {
			h.releaseInBackground("release")
			return fmt.Errorf("not acknowledged within %v: %w", limit.Round(time.Millisecond), backend.Uncertain(retry.OwnTimeout(working, err)))
		}
		err = retry.Once(&detached, h.req.TTL, h.grant.Release)
	}
}

// serverKeeps returns for how long the service may keep the grant if it receives nothing.
func (h *heldGrant) serverKeeps() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.serverUntil) + trust.Margin(h.ttl)
}

func (h *heldGrant) releaseInBackground(what string) {
	h.engine.cfg.Cleaner.Release(h.req, max(h.serverKeeps(), 0), what, h.grant.Release)
}

// releaseOnClose releases a grant that closing has ended. Within its minimum hold it is
// left to expire, if the service has TTLs.
func (h *heldGrant) releaseOnClose(ctx context.Context) error {
	if left := h.minHoldLeft(); left > 0 && h.engine.caps.Loss == backend.LossTTL {
		return retry.Do(ctx, h.req.TTL, func(ctx context.Context) error { return h.keep(ctx, left) })
	}
	return retry.Do(ctx, h.req.TTL, h.grant.Release)
}

// minHoldLeft returns what is left of the minimum hold, zero or less if nothing.
func (h *heldGrant) minHoldLeft() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.minHoldStart.Add(h.params.MinHold))
}

// keep makes the service keep an ended grant for d, within the bounds of the backend.
func (h *heldGrant) keep(ctx context.Context, d time.Duration) error {
	done, err := h.beginRenewal(ctx, false)
	if err != nil {
		return err
	}
	defer done()
	d = min(max(d, h.engine.caps.MinTTL), h.engine.caps.MaxTTL)
	if k, ok := backend.As[backend.Keeper](h.grant); ok {
		return h.send(ctx, d, k.Keep)
	}
	return h.send(ctx, d, h.grant.Renew)
}

// keepForMinHold makes the service keep the grant of an ended lease until its minimum hold
// has passed. It returns ErrLost if the service says that the lock had been lost.
func (h *heldGrant) keepForMinHold(ctx context.Context, left time.Duration) error {
	err := retry.Once(context.WithoutCancel(ctx), h.req.TTL, func(ctx context.Context) error { return h.keep(ctx, left) })
	if errors.Is(err, backend.ErrLost) {
		if h.trustExpired() { // while the request was under way
			return nil
		}
		return err
	}
	h.releaseAfterMinHold(err)
	return nil
}

// releaseAfterMinHold releases an ended grant in the background, not before its minimum hold
// has passed. err is why the service may not keep it until then, or nil.
func (h *heldGrant) releaseAfterMinHold(err error) {
	switch {
	case h.minHoldLeft() <= 0:
		h.releaseInBackground("release of an ended lease")
	case h.engine.tasks.BeginCleanup():
		go func() {
			defer h.engine.tasks.Done()
			h.awaitMinHold(err)
		}()
	}
}

// awaitMinHold releases the grant when its minimum hold has passed, and extends it until
// then if one request could not. err is the result of the first request.
func (h *heldGrant) awaitMinHold(err error) {
	const what = "minimum hold"
	tasks, failed := h.engine.tasks, h.engine.cfg.Cleaner.Failed
	for {
		left := h.minHoldLeft()
		if left <= 0 {
			h.releaseInBackground("release after the minimum hold")
			return
		}
		t := time.NewTimer(h.nextKeep(left, err))
		select {
		case <-t.C:
		case <-tasks.Closing().Done():
			t.Stop()
			if err := retry.Once(tasks.Working(), h.req.TTL, h.releaseOnClose); err != nil {
				failed(what, h.req.Key, err)
			}
			return
		}
		if left = h.minHoldLeft(); left > 0 {
			err = retry.Once(tasks.Working(), h.req.TTL, func(ctx context.Context) error { return h.keep(ctx, left) })
			if errors.Is(err, backend.ErrLost) {
				failed(what, h.req.Key, err)
				return
			}
		}
	}
}

// nextKeep returns the pause before the next request of awaitMinHold: all that is left,
// less if the backend cannot keep a grant for that long or if the last request failed.
func (h *heldGrant) nextKeep(left time.Duration, err error) time.Duration {
	next := left
	if most := h.engine.caps.MaxTTL; most < left {
		next = most / 3
	}
	if err != nil {
		next = min(next, h.req.TTL/12)
		h.mu.Lock()
		trusted := time.Until(h.trustedUntil)
		h.mu.Unlock()
		if trusted > -trust.Margin(h.req.TTL) { // the service still keeps the grant
			next = min(next, max(trusted/4, minRenewTime))
		}
	}
	return next
}
