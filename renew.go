package lock

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

// The renewal engine. Every hold has two timers and, at rest, no goroutine:
//
//   - trust fires at the end of the trust window and ends the hold, whatever
//     a renewal is doing at that time;
//   - renew fires when a third of the granted time has passed, and after
//     a failure each TTL/12.
//
// A renewal that is under way is bounded by the trust that is left.

// start arms the timers of a new hold.
func (h *hold) start(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		h.extendedLocked(sent, h.ttl)
	}
}

// extendedLocked moves the trust window after a grant or a renewal that was sent
// at sent, and arms the timers for it.
func (h *hold) extendedLocked(sent time.Time, ttl time.Duration) {
	now := time.Now()
	h.last = nil
	expires := h.client.expires() || h.cfg.noRenewal
	left := ttl
	if expires {
		h.until = trustedUntil(sent, ttl, h.grant)
		left = h.until.Sub(now)
		// a pushed grant may begin with less than the TTL; the first renewal completes it
		h.full = h.full || left > ttl/2
		if h.trust == nil {
			h.trust = time.AfterFunc(left, h.trustOver)
		} else {
			h.trust.Reset(left)
		}
	}
	if h.cfg.noRenewal && h.full {
		if h.renew != nil {
			h.renew.Stop()
		}
		return
	}
	h.renewInLocked(left / 3)
}

func (h *hold) renewInLocked(d time.Duration) {
	if h.renew == nil {
		h.renew = time.AfterFunc(d, h.renewDue)
	} else {
		h.renew.Reset(d)
	}
}

func (h *hold) trustOver() { _ = h.end() }

// renewDue makes one renewal and arms the timer for the next.
func (h *hold) renewDue() {
	if !h.client.begin() {
		return
	}
	defer h.client.done()
	err := h.renewOnce(h.client.work, 0, false)
	h.mu.Lock()
	failed := err != nil && h.ended == nil
	if failed {
		h.last = err
		again := h.ttl / 12
		if !h.until.IsZero() {
			again = min(again, max(time.Until(h.until)/4, 10*time.Millisecond)) // a claim is shorter than the TTL
		}
		h.renewInLocked(again)
	}
	h.mu.Unlock()
	if failed {
		h.client.renewFailed(h, err)
	}
}

// renewOnce makes one renewal to ttl, or to the hold's TTL if that is zero. It is
// bounded by ctx, by the end of the hold, by the trust that is left, and so that
// there is time for another attempt. With keep, the lease's end stays where it is.
func (h *hold) renewOnce(ctx context.Context, ttl time.Duration, keep bool) error {
	select {
	case h.turn <- struct{}{}:
	case <-h.over:
		return h.end()
	case <-ctx.Done():
		return contextError(ctx)
	}
	defer func() { <-h.turn }()

	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return h.end()
	}
	if ttl == 0 {
		ttl = h.ttl
	}
	if keep {
		ttl = max(time.Until(h.until)+margin(h.ttl), h.client.caps.MinTTL)
	}
	bound := h.ttl / 4
	if !h.until.IsZero() {
		bound = min(bound, time.Until(h.until)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, max(bound, 10*time.Millisecond))
	defer cancel()
	h.stop = cancel
	h.mu.Unlock()

	sent := time.Now()
	err := h.sendRenewal(ctx, ttl, h.renewTogether)
	if errors.Is(err, ErrLost) {
		h.lose(err)
		return h.end()
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil && !h.expiredLocked(time.Now()) && !keep { // once lost, never revived
		h.ttl = ttl
		h.full = true
		h.extendedLocked(sent, ttl)
	}
	return h.ended
}

// renewTogether renews in company where the backend can and many are due. Trust
// counts from before the wait for it. After a batch that failed the next renewal goes
// out by itself: what keeps batches from being served must not cost a lease.
func (h *hold) renewTogether(ctx context.Context, ttl time.Duration) error {
	r := h.client.renewals
	if r == nil {
		return h.grant.Renew(ctx, ttl)
	}
	return renewBy(ctx, h.grant, ttl, func(g backend.Grant) error {
		together, err := r.renew(ctx, g, ttl, h.alone)
		h.alone = together && err != nil
		return err
	})
}

// renewGrant sends a renewal by itself, whose turn it must be. Whatever comes of it, the
// service may keep the grant for ttl from its end on.
func (h *hold) renewGrant(ctx context.Context, ttl time.Duration) error {
	return h.sendRenewal(ctx, ttl, h.grant.Renew)
}

func (h *hold) sendRenewal(ctx context.Context, ttl time.Duration, renew func(context.Context, time.Duration) error) error {
	err := renew(ctx, ttl)
	h.mu.Lock()
	defer h.mu.Unlock()
	if kept := time.Now().Add(ttl); kept.After(h.kept) {
		h.kept = kept
	}
	return err
}

// renewFor renews at the user's request.
func (h *hold) renewFor(ctx context.Context, l *Lease, op string, ttl time.Duration) error {
	c := h.client
	if op == "extend" {
		if err := validTTL("ttl", ttl, c.caps); err != nil {
			return c.wrap(op, h.req.Key, err)
		}
	}
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return c.wrap(op, h.req.Key, contextError(ctx))
	}
	if !c.begin() {
		return c.wrap(op, h.req.Key, ErrClosed)
	}
	defer c.done()
	err := h.renewOnce(ctx, ttl, op == "check" && h.cfg.noRenewal)
	if end := l.Err(); end != nil {
		return end
	}
	if err == nil {
		return nil
	}
	return c.wrap(op, h.req.Key, withContext(ctx, err))
}
