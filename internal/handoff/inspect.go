package handoff

import (
	"context"
	"errors"

	"github.com/interlock-go/lock/backend"
)

// Inspect implements backend.Inspector.
func (b *Backend) Inspect(ctx context.Context, key string) (info backend.Info, err error) {
	inner, ok := backend.As[backend.Inspector](b.inner)
	if !ok {
		return info, errors.ErrUnsupported
	}
	translate := b.translator(key)
	info, err = inner.Inspect(ctx, key)
	translate(info.Holder)
	return info, err
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key string) (removed *backend.Holder, err error) {
	inner, ok := backend.As[backend.Breaker](b.inner)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	translate := b.translator(key)
	removed, err = inner.Break(ctx, key)
	translate(removed)
	return removed, err
}

// List implements backend.Lister.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	inner, ok := backend.As[backend.Lister](b.inner)
	if !ok {
		return errors.ErrUnsupported
	}
	return inner.List(ctx, func(i backend.Info) bool {
		b.translator(i.Name)(i.Holder)
		return yield(i)
	})
}

// translator returns a function that replaces the holder of key, as the inner backend
// knows it, by the present turn of this client, and its token by that of the first turn if
// another client holds the key.
func (b *Backend) translator(key string) func(*backend.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.translatorLocked(key)
}

func (b *Backend) translatorLocked(key string) func(*backend.Holder) {
	turns := map[string]*turn{} // by the owner id of the shared grant
	for _, q := range b.queues[key] {
		if q.grant != nil {
			turns[q.grant.req.Owner] = q.grant.turn
		}
	}
	return func(h *backend.Holder) {
		switch {
		case h == nil || h.Foreign:
		case turns[h.Owner] != nil:
			t := turns[h.Owner]
			h.Owner, h.Token = t.owner, t.token
		default:
			h.Token = turnToken(h.Token, 0)
		}
	}
}

// translateLocked returns err with a translated holder if it is a *backend.LockedError.
func translateLocked(err error, translate func(*backend.Holder)) error {
	locked, ok := err.(*backend.LockedError) //nolint:errorlint // a wrapped one keeps its text
	if !ok {
		return err
	}
	out := *locked
	translate(&out.Holder)
	return &out
}
