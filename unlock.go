package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// unlockTimeout bounds Unlock: the backend's acknowledgement is awaited that long.
const unlockTimeout = 5 * time.Second

// unlock gives up the lease, and the hold with its last.
func (h *hold) unlock(ctx context.Context, l *Lease) error {
	c := h.client
	if !c.begin() {
		if err := l.Err(); err != nil {
			return err
		}
		return c.wrap("unlock", h.req.Key, ErrClosed)
	}
	defer c.done()
	// The holder's context ends here, before the request that lets a successor in.
	why, last := h.remove(l)
	if !last {
		return why
	}
	var err error
	if left := h.minHoldLeft(); left > 0 {
		err = h.linger(ctx, left)
	} else {
		err = h.release(ctx)
	}
	if err != nil {
		err = c.wrap("unlock", h.req.Key, err)
	}
	c.released(ctx, h, err)
	return err
}

// release frees the grant under a context detached from the caller's. Frees that
// are not acknowledged are sent again. "Not yours" after one that may have been
// executed means that it, or the TTL, has freed the lock: the work was done under
// it, and an error would only invite doing it twice.
func (h *hold) release(ctx context.Context) error {
	bound := unlockTimeout
	if h.client.caps.Loss == backend.LossTTL {
		bound = min(bound, max(h.keptFor(), 100*time.Millisecond)) // then it is free by itself
	}
	ctx = detach(ctx, h.client.work)
	until := time.Now().Add(bound)
	// The first attempt is nearly always the only one, so one timer has both bounds.
	err := within(ctx, min(bound, attemptTime(h.req.TTL)), h.grant.Release)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	pause := newBackoff()
	for resent := false; ; {
		switch {
		case err == nil, resent && errors.Is(err, ErrLost):
			return nil
		case errors.Is(err, ErrLost), !transient(err):
			return err
		}
		resent = resent || errors.Is(err, ErrUncertain)
		if !pause.wait(ctx) {
			h.cleanUp("release")
			if !errors.Is(err, ErrUncertain) {
				err = backend.Uncertain(err)
			}
			return fmt.Errorf("not acknowledged within %v: %w", bound.Round(time.Millisecond), err)
		}
		err = attemptFor(ctx, h.req.TTL, h.grant.Release)
	}
}

// keptFor is how long the service may keep the grant if nothing reaches it.
func (h *hold) keptFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.kept) + margin(h.ttl)
}

// cleanUp frees the grant in the background.
func (h *hold) cleanUp(what string) {
	h.client.cleanUp(h.req, max(h.keptFor(), 0), what, h.grant.Release)
}

// closeGrant frees the grant of a hold that closing has ended, or, if it is within
// its minimum hold, leaves it to its TTL where there is one.
func (h *hold) closeGrant(ctx context.Context) error {
	if left := h.minHoldLeft(); left > 0 && h.client.caps.Loss == backend.LossTTL {
		return retry(ctx, h.req.TTL, func(ctx context.Context) error { return h.keep(ctx, left) })
	}
	return retry(ctx, h.req.TTL, h.grant.Release)
}

// expiresAt is the end of the trust that the hold had.
func (h *hold) expiresAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// minHoldLeft is what is left of the minimum hold, zero or less if nothing.
func (h *hold) minHoldLeft() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.from.Add(h.cfg.minHold))
}

// keepFrom makes the minimum hold count from t.
func (h *hold) keepFrom(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.from = t
}

// keep makes the service keep the grant of an ended hold for d, as far as its
// bounds allow.
func (h *hold) keep(ctx context.Context, d time.Duration) error {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return contextError(ctx)
	}
	defer func() { <-h.turn }()
	d = max(d, h.client.caps.MinTTL)
	if most := h.client.caps.MaxTTL; most > 0 {
		d = min(d, most)
	}
	if k, ok := h.grant.(backend.Keeper); ok {
		return h.sendRenewal(ctx, d, k.Keep)
	}
	return h.renewGrant(ctx, d)
}

// linger keeps the grant of an unlocked hold until its minimum hold has passed. It
// returns ErrLost if the service says that the lock had been lost.
func (h *hold) linger(ctx context.Context, left time.Duration) error {
	err := attemptFor(context.WithoutCancel(ctx), h.req.TTL, func(ctx context.Context) error { return h.keep(ctx, left) })
	if errors.Is(err, ErrLost) {
		return err
	}
	if !h.client.beginLate() {
		return nil
	}
	go func() {
		defer h.client.done()
		h.lingering(err)
	}()
	return nil
}

// lingering goes on where linger's first attempt, which ended with err, has left off.
func (h *hold) lingering(err error) {
	c := h.client
	for {
		left := h.minHoldLeft()
		if left <= 0 {
			h.cleanUp("release after the minimum hold")
			return
		}
		next := left // the service keeps it that long, or as long as it can
		if most := c.caps.MaxTTL; most > 0 && most < left {
			next = most / 3
		}
		if err != nil {
			next = min(next, h.req.TTL/12)
			if left := time.Until(h.expiresAt()); left > -margin(h.req.TTL) { // the service has it still
				next = min(next, max(left/4, 10*time.Millisecond))
			}
		}
		t := time.NewTimer(next)
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			if err := attemptFor(c.work, h.req.TTL, h.closeGrant); err != nil {
				c.warn("minimum hold", h.req.Key, err)
			}
			return
		}
		if left = h.minHoldLeft(); left > 0 {
			err = attemptFor(c.work, h.req.TTL, func(ctx context.Context) error { return h.keep(ctx, left) })
			if errors.Is(err, ErrLost) {
				c.warn("minimum hold", h.req.Key, err)
				return
			}
		}
	}
}
