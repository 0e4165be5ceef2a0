package engine

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/trust"
)

// A held grant has one timer. It fires when a third of what was granted has passed, and
// every twelfth of the TTL after a failure, to renew the grant. While that renewal is under
// way, and for a fixed lease, it fires at the end of trust and ends the grant, whatever the
// renewal is doing at that time. A provisional grant survives no longer outage than its
// provisional TTL, so it is renewed after completeAfter. A renewal takes at most half of the
// trust that is left, so a hung one leaves time for another.

const (
	minRenewTime  = 10 * time.Millisecond // for a renewal, and the least pause after a failure
	completeAfter = 20 * time.Millisecond // a lock that is released sooner costs no renewal
)

// start sets the timer of a new grant. from is as in trust.Until. A grant is provisional if
// it lasts for less than the TTL although its request has waited, or for less than half of
// the TTL. The margin is allowed for the round trip.
func (h *heldGrant) start(from trust.Instant, waited bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil {
		return
	}
	if expires := h.grant.Until(); !expires.IsZero() {
		left := time.Until(expires)
		h.provisional = left <= h.ttl/2 || waited && left <= h.ttl-trust.Margin(h.ttl)
	}
	h.extendLocked(from, h.ttl)
}

// extendLocked moves the end of trust after a grant or a renewal and sets the timer. from is
// as in trust.Until.
func (h *heldGrant) extendLocked(from trust.Instant, ttl time.Duration) {
	now := time.Now()
	h.renewErr = nil
	h.engine.outages.over(h, false)
	left := ttl
	expires := h.grant.Until()
	if expires.IsZero() && h.params.Fixed {
		expires = from.Add(ttl) // the service counts no time, so a fixed lease is counted here
	}
	if !expires.IsZero() {
		h.trustedFrom, h.trustedUntil = from, trust.Until(from.Time, expires, ttl)
		left = h.trustedUntil.Sub(now)
	}
	switch {
	case h.provisional:
		h.setTimerLocked(min(left/3, completeAfter), true)
	case !h.params.Fixed:
		h.setTimerLocked(left/3, true)
	default:
		h.setTimerLocked(left, false)
	}
}

// setTimerLocked sets the timer for a renewal, or for the end of trust.
func (h *heldGrant) setTimerLocked(d time.Duration, renews bool) {
	h.renews = renews
	if h.timer == nil {
		h.timer = time.AfterFunc(d, h.onTimer)
	} else {
		h.timer.Reset(d)
	}
}

// onTimer ends the grant if its trust has expired, or renews it and sets the timer again.
func (h *heldGrant) onTimer() {
	e := h.engine
	h.mu.Lock()
	now := time.Now()
	renews := h.renews && !h.expiredLocked(now)
	if renews && h.cause == nil && !h.trustedUntil.IsZero() {
		h.setTimerLocked(h.trustedUntil.Sub(now), false)
	}
	h.mu.Unlock()
	if !renews {
		_ = h.endCause()
		return
	}
	if !e.tasks.Begin() {
		return
	}
	defer e.tasks.Done()
	err := h.renew(e.tasks.Working(), 0, false)
	h.mu.Lock()
	failed := err != nil && h.cause == nil
	if failed {
		h.renewErr = err
		e.outages.failed(h, err)
		h.renewAgainLocked()
	}
	h.mu.Unlock()
	if failed && e.cfg.Report != nil {
		e.cfg.Report(h.values(), h.event(RenewFailed, err))
	}
	_ = h.endCause()
}

// renewAgainLocked sets the timer after a renewal that failed, if trust has not expired.
func (h *heldGrant) renewAgainLocked() {
	pause, renews := h.ttl/12, true
	if !h.trustedUntil.IsZero() {
		now := time.Now()
		if h.expiredLocked(now) {
			return
		}
		left := h.trustedUntil.Sub(now)
		pause = min(pause, max(left/4, minRenewTime)) // a pushed grant is shorter than the TTL
		if pause >= left {
			pause, renews = left, false
		}
	}
	h.setTimerLocked(pause, renews)
}

// renew makes one renewal to ttl, or to the TTL of the grant if that is zero. It is
// bounded by ctx, the end of the grant and the trust that is left. If verify is set, the
// end of trust stays.
func (h *heldGrant) renew(ctx context.Context, ttl time.Duration, verify bool) error {
	done, err := h.beginRenewal(ctx, true)
	if err != nil {
		return err
	}
	defer done()

	h.mu.Lock()
	if h.cause != nil || h.expiredLocked(time.Now()) { // the timer is late if the machine was suspended
		h.mu.Unlock()
		return h.endCause()
	}
	if ttl == 0 {
		ttl = h.ttl
	}
	if verify {
		ttl = max(time.Until(h.trustedUntil)+trust.Margin(h.ttl), h.engine.caps.MinTTL)
	}
	bound := h.ttl / 4
	if !h.trustedUntil.IsZero() {
		bound = min(bound, time.Until(h.trustedUntil)/2)
	}
	bound = max(bound, minRenewTime)
	caller, until := ctx, h.trustedUntil
	if !h.engine.queuesRenewals || until.IsZero() {
		until = time.Now().Add(bound)
	}
	ctx, cancel := retry.WithSendLimit(ctx, until, bound)
	defer cancel()
	h.cancelRenewal = cancel
	h.mu.Unlock()

	sent := trust.Now()
	err = retry.OwnTimeout(caller, h.send(ctx, ttl, h.grant.Renew))
	if errors.Is(err, backend.ErrLost) && !retry.FromCause(ctx, err) {
		h.endAsLost(err)
		return h.endCause()
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil && !h.expiredLocked(time.Now()) && !verify { // a late reply does not revive a lease
		h.ttl = ttl
		h.provisional = false
		h.extendLocked(sent, ttl)
	}
	return h.cause
}

// beginRenewal waits for its turn to renew, until ctx ends or, if held is set, the grant
// ends. The caller must call done.
func (h *heldGrant) beginRenewal(ctx context.Context, held bool) (done func(), err error) {
	h.mu.Lock()
	if h.renewing == nil {
		h.renewing, h.done = make(chan struct{}, 1), make(chan struct{})
		if h.cause != nil {
			close(h.done)
		}
	}
	renewing, ended := h.renewing, h.done
	h.mu.Unlock()
	if !held {
		ended = nil
	}
	select {
	case renewing <- struct{}{}:
		return func() { <-renewing }, nil
	case <-ended:
		return nil, h.endCause()
	case <-ctx.Done():
		return nil, retry.ContextError(ctx)
	}
}

// send sends one renewal to ttl. Whatever comes of it, the service may keep the grant for
// ttl from its end on.
func (h *heldGrant) send(ctx context.Context, ttl time.Duration, renew func(context.Context, time.Duration) error) error {
	err := renew(ctx, ttl)
	h.mu.Lock()
	defer h.mu.Unlock()
	if until := time.Now().Add(ttl); until.After(h.serverUntil) {
		h.serverUntil = until
	}
	return err
}

// Renew asks the service whether it still holds the grant, and extends it to ttl, or to
// its TTL if ttl is zero: then the end of a fixed lease stays where it is. An error that
// matches ErrLost has ended the lease.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.request(ctx, func() error { return l.held.renew(ctx, ttl, ttl == 0 && l.held.params.Fixed) })
}

// request calls send, which asks the service about the grant of the lease, unless the lease or
// ctx has ended. Closing waits for it. If the lease has ended meanwhile, the error is that.
func (l *Lease) request(ctx context.Context, send func() error) error {
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return retry.ContextError(ctx)
	}
	tasks := l.held.engine.tasks
	if !tasks.Begin() {
		return backend.ErrClosed
	}
	defer tasks.Done()
	err := send()
	if cause := l.Err(); cause != nil {
		return cause
	}
	return retry.WithContext(ctx, err)
}
