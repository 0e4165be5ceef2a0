package handoff

import (
	"context"
	"errors"
	"fmt"

	"github.com/interlock-go/lock/backend"
)

// acquireShare acquires a share of a key from the inner backend. Only exclusive grants are
// passed on locally: the inner backend grants shares to many requests at once.
func (b *Backend) acquireShare(ctx context.Context, req backend.Request, acquire func(context.Context, backend.Request) (backend.Grant, error)) (backend.Grant, error) {
	inner := req
	if req.OnWait != nil {
		inner.OnWait = func(locked *backend.LockedError) {
			if locked != nil {
				out := *locked
				b.translator(req.Key)(&out.Holder)
				locked = &out
			}
			req.OnWait(locked)
		}
	}
	g, err := acquire(ctx, inner)
	if err != nil {
		return nil, translateLocked(err, b.translator(req.Key))
	}
	if t := g.Token(); t > maxInnerToken {
		b.release(g, req, "release of a grant with too great a token")
		return nil, errGreatToken(t)
	}
	return shareGrant{g, req.Owner}, nil
}

func errGreatToken(t uint64) error {
	return backend.Invalid("fencing token", t, fmt.Sprintf("at most %d with local hand-off", int64(maxInnerToken)))
}

// shareGrant is a grant of a share, with a token that fits those of the turns.
type shareGrant struct {
	backend.Grant
	owner string
}

func (g shareGrant) Token() uint64         { return turnToken(g.Grant.Token(), 0) }
func (g shareGrant) Unwrap() backend.Grant { return g.Grant }

// GrantedAs is that of a turn.
func (g shareGrant) GrantedAs() (owner string, token uint64) { return g.owner, g.Grant.Token() }

// Downgrade implements backend.Downgrader. The grant is not passed on any more.
func (t *turn) Downgrade(ctx context.Context) error {
	d, ok := backend.As[backend.Downgrader](t.shared.grant)
	if !ok {
		return errors.ErrUnsupported
	}
	return t.renew(ctx, false, func() error { return d.Downgrade(ctx) })
}
