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
	translateInfo(&info, translate)
	return info, err
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (removed *backend.Holder, err error) {
	inner, ok := backend.As[backend.Breaker](b.inner)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	translate := b.translator(key)
	if owner, err = b.innerOwner(key, owner); err != nil {
		return nil, err
	}
	removed, err = inner.Break(ctx, key, owner)
	translate(removed)
	return removed, translateLocked(err, translate)
}

// innerOwner returns the owner id by which the inner backend knows the holder owner. If
// owner has a turn of this client, its grant is not passed on any more: a break of the grant
// removes no later turn. The error is that of an earlier turn of a grant.
func (b *Backend) innerOwner(key, owner string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues[key] {
		s := q.grant
		if s == nil {
			continue
		}
		switch owner {
		case s.turn.owner:
			s.closed = true
			q.sendLocked()
			return s.req.Owner, nil
		case s.req.Owner:
			return "", s.lockedLocked()
		}
	}
	return owner, nil
}

// List implements backend.Lister.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	inner, ok := backend.As[backend.Lister](b.inner)
	if !ok {
		return errors.ErrUnsupported
	}
	return inner.List(ctx, func(i backend.Info) bool {
		translateInfo(&i, b.translator(i.Name))
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

func translateInfo(info *backend.Info, translate func(*backend.Holder)) {
	translate(info.Holder)
	for i := range info.Others {
		translate(&info.Others[i])
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
