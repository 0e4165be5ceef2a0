package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
)

// Slots returns the permits that the lease holds, nil if it holds none of a semaphore.
func (l *Lease) Slots() []int {
	if g, ok := backend.As[backend.SlotHolder](l.held.grant); ok {
		return g.Slots()
	}
	return nil
}

// Downgrade makes an exclusive grant that of a reader. It repeats a request that failed until
// ctx ends or half of the trust that is left has passed. From the first request on nothing may
// rely on exclusion. Only if every request was certainly not executed, the grant is exclusive
// again. After one whose outcome is unknown it is that of a reader for good, because that request
// may be executed later, whatever the service answers to another one; the errors match
// ErrUncertain until the service has answered that the grant is that of a reader.
func (l *Lease) Downgrade(ctx context.Context) error {
	return l.request(ctx, func() error { return l.held.downgrade(ctx) })
}

func (h *heldGrant) downgrade(ctx context.Context) error {
	if err := h.engine.caps.CheckShare(backend.Reader); err != nil {
		return err
	}
	d, ok := backend.As[backend.Downgrader](h.grant)
	if !ok {
		return fmt.Errorf("backend %s declares read locks and cannot downgrade: %w", h.engine.caps.Name, errors.ErrUnsupported)
	}
	done, err := h.beginRenewal(ctx, true)
	if err != nil {
		return err
	}
	defer done()

	h.mu.Lock()
	before, bound, unknown := h.share, h.ttl, h.halfReader
	if !h.trustedUntil.IsZero() {
		bound = time.Until(h.trustedUntil) / 2
	}
	switch {
	case before == backend.Reader && !unknown:
		h.mu.Unlock()
		return nil
	case before != backend.Reader && !before.Exclusive():
		h.mu.Unlock()
		return backend.Invalid("downgrade", "of "+before.String()+" permits", "a lease of Lock, which becomes that of a reader")
	case before.Exclusive() && len(h.leases) > 1:
		h.mu.Unlock()
		return fmt.Errorf("%w downgrade: %d leases of WithReentry are nested in this grant and rely on exclusion: unlock them first", backend.ErrInvalid, len(h.leases)-1)
	}
	h.share = backend.Reader
	h.mu.Unlock()

	bounded, cancel := context.WithTimeout(ctx, max(bound, minRenewTime))
	defer cancel()
	err = retry.OwnTimeout(ctx, retry.Do(bounded, h.req.TTL, func(ctx context.Context) error {
		err := d.Downgrade(ctx)
		unknown = unknown || backend.OutcomeUnknown(err)
		return err
	}))
	if errors.Is(err, backend.ErrLost) && !retry.FromCause(ctx, err) {
		h.endAsLost(err)
		return h.endCause()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.halfReader = unknown && err != nil
	switch {
	case err == nil:
	case !unknown:
		h.share = before
	case !errors.Is(err, backend.ErrUncertain):
		err = backend.Uncertain(err)
	}
	return err
}
