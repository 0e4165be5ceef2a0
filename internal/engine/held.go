package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/trust"
)

// heldGrant is a grant and what its leases share: the lease of the Acquire that obtained
// it, and those that reentry added.
type heldGrant struct {
	engine   *Engine
	params   *Params
	req      backend.Request
	grant    backend.Grant
	acquired time.Time
	first    Lease // that of Acquire

	mu            sync.Mutex    // guards the fields below
	cause         error         // why it has ended; nil while it is held
	leases        []*Lease      // not released; after the end as they were then
	firstOnly     [1]*Lease     // the array of leases without reentry
	share         backend.Share // what the leases may rely on
	halfReader    bool          // share is Reader, and the service has not confirmed that
	minHoldStart  time.Time
	ttl           time.Duration      // of the next renewal
	provisional   bool               // it was pushed for less than ttl, and not renewed yet
	trustedFrom   trust.Instant      // before the request that was answered last
	trustedUntil  time.Time          // zero: no expiry
	serverUntil   time.Time          // the service frees the key by then at the latest
	renewErr      error              // of the last renewal; nil after a success
	timer         *time.Timer        // fires when the next renewal is due, or at trustedUntil
	renews        bool               // what the timer is set for: a renewal
	cancelRenewal context.CancelFunc // of the renewal in flight
	renewing      chan struct{}      // capacity 1: renewals do not overlap; made by the first
	done          chan struct{}      // closed at the end; made by the first renewal
	announced     bool               // Acquired has been reported
	pendingEnd    func()             // reports an end that came before that
	failing       bool               // the last renewal failed; guarded by engine.outages.mu
	lossNumber    int                // of the leases that its outage has cost; zero: not lost in an outage
}

// endCause returns why the grant has ended, or nil. A grant whose trust has expired ends
// here if its timer has not fired yet.
func (h *heldGrant) endCause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expireLocked()
	return h.cause
}

// expireLocked ends the grant if its trust has expired. It gives up the mutex meanwhile.
func (h *heldGrant) expireLocked() {
	if h.cause == nil && h.expiredLocked(time.Now()) {
		h.mu.Unlock()
		h.endAsLost(nil)
		h.mu.Lock()
	}
}

// trustExpired reports whether trust has expired by now, also after the end of the grant.
func (h *heldGrant) trustExpired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expiredLocked(time.Now())
}

func (h *heldGrant) expiredLocked(now time.Time) bool {
	return !h.trustedUntil.IsZero() && !h.trustedFrom.After(now).Before(h.trustedUntil)
}

// end ends the grant, once, and the renewal in flight. It reports whether this call did so.
// The caller then reports the end and releases the grant.
func (h *heldGrant) end(cause error) bool {
	h.mu.Lock()
	ended := h.endLocked(cause)
	h.mu.Unlock()
	if ended {
		h.stopRenewal()
	}
	return ended
}

// stopRenewal cancels the renewal in flight. A release does so only afterwards: a driver
// may have to close the connection of a request that is cancelled.
func (h *heldGrant) stopRenewal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cancelRenewal != nil {
		h.cancelRenewal()
	}
}

// endLocked stops the timer, ends the contexts of the leases and unregisters the grant.
func (h *heldGrant) endLocked(cause error) bool {
	if h.cause != nil {
		return false
	}
	h.cause = cause
	h.lossNumber = h.engine.outages.over(h, errors.Is(cause, backend.ErrLost))
	if h.timer != nil {
		h.timer.Stop()
	}
	for _, l := range h.leases {
		l.endContextLocked()
	}
	if h.done != nil {
		close(h.done)
	}
	h.engine.unregister(h)
	return true
}

// endAsLost ends the grant as lost. reason is the error of the service, or nil if trust
// has expired.
func (h *heldGrant) endAsLost(reason error) {
	e := h.engine
	if !e.tasks.BeginCleanup() { // so that closing waits for the cleanup below
		h.end(e.cfg.EndErr(h.req.Key, backend.ErrClosed))
		return
	}
	defer e.tasks.Done()
	expired := reason == nil
	if expired {
		h.mu.Lock()
		reason = errors.New("its TTL has passed")
		if h.renewErr != nil {
			reason = fmt.Errorf("not renewed in time: %w", h.renewErr)
		}
		h.mu.Unlock()
	}
	if !errors.Is(reason, backend.ErrLost) {
		reason = fmt.Errorf("%w: %w", backend.ErrLost, reason)
	}
	err := e.cfg.EndErr(h.req.Key, reason)
	if !h.end(err) {
		return
	}
	if expired { // the service may keep the key a little longer, and others wait for it
		defer h.releaseAfterMinHold(reason)
	}
	h.reportEnd(h.values(), Lost, err)
}

// remove ends one lease, and the grant with its last lease: in one step, so that reentry
// cannot add a lease in between. It returns why the grant had ended before, if it had, and
// whether the lease was the last.
func (h *heldGrant) remove(l *Lease) (cause error, last bool) {
	if cause = h.endCause(); cause != nil {
		return cause, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return h.cause, false
	}
	released := h.engine.cfg.EndErr(h.req.Key, ErrReleased)
	if len(h.leases) == 1 {
		h.endLocked(released)
		return nil, true
	}
	h.leases = slices.DeleteFunc(h.leases, func(o *Lease) bool { return o == l })
	l.released = released
	l.endContextLocked()
	return nil, false
}

// values returns a context with the values of the first lease.
func (h *heldGrant) values() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases[0].Context()
}

// lossRelay brings a loss that the backend pushes to the held grant, which may not exist
// yet.
type lossRelay struct {
	engine *Engine
	mu     sync.Mutex // guards the fields below
	held   *heldGrant
	reason error
}

// report is backend.Request.OnLost.
func (r *lossRelay) report(reason error) {
	if reason == nil {
		reason = backend.ErrLost
	}
	r.mu.Lock()
	first := r.reason == nil
	r.reason = reason
	h := r.held
	r.mu.Unlock()
	if h == nil || !first || !r.engine.tasks.BeginCleanup() {
		return
	}
	go func() { // observers are called, and a driver must not wait for them
		defer r.engine.tasks.Done()
		h.endAsLost(reason)
	}()
}

// bind sets the held grant, which ends now if the loss has been reported before.
func (r *lossRelay) bind(h *heldGrant) {
	r.mu.Lock()
	r.held = h
	reason := r.reason
	r.mu.Unlock()
	if reason != nil {
		h.endAsLost(reason)
	}
}

// checkGrant returns an error if a grant makes no lease at now. from is as in trust.Until.
func (e *Engine) checkGrant(now time.Time, from trust.Instant, g backend.Grant, ttl time.Duration) error {
	expires := g.Until()
	switch {
	case expires.IsZero() && e.caps.Loss != backend.LossProcess:
		return fmt.Errorf("backend %s does not say until when it keeps a grant", e.caps.Name)
	case !expires.IsZero() && !from.After(now).Before(trust.Until(from.Time, expires, ttl)):
		return errGrantExpired
	}
	return nil
}
