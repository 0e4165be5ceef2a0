package lock_test

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// far is a service that is half of roundTrip away, each way. Time is the bubble's.
type far struct {
	*memlock.Backend
	mu    sync.Mutex
	calls map[string]int
	away  time.Duration // there and back; zero: roundTrip
	// spoil, if set, makes an operation fail after it was executed.
	spoil func(op string) error
}

const roundTrip = 4 * time.Millisecond

func newFar(s *memlock.Space) *far { return &far{Backend: s.Backend(), calls: map[string]int{}} }

func (f *far) exchange(ctx context.Context, op string, execute func() error) error {
	f.mu.Lock()
	f.calls[op]++
	spoil, away := f.spoil, cmp.Or(f.away, roundTrip)
	f.mu.Unlock()
	time.Sleep(away / 2) // of the bubble's clock
	err := execute()
	if op != "wait" || ctx.Err() == nil {
		time.Sleep(away / 2)
	}
	if spoil != nil {
		if spoilt := spoil(op); spoilt != nil {
			return spoilt
		}
	}
	return err
}

func (f *far) granted(g backend.Grant) *farGrant { return &farGrant{g.(keeperGrant), f} }

func (f *far) TryAcquire(ctx context.Context, req backend.Request) (out backend.Grant, err error) {
	err = f.exchange(ctx, "try", func() error {
		g, err := f.Backend.TryAcquire(ctx, req)
		if err == nil {
			out = f.granted(g)
		}
		return err
	})
	return out, err
}

func (f *far) Acquire(ctx context.Context, req backend.Request) (out backend.Grant, err error) {
	err = f.exchange(ctx, "wait", func() error {
		g, err := f.Backend.Acquire(ctx, req)
		if err == nil {
			out = f.granted(g)
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, backend.Uncertain(err)
	}
	return out, err
}

func (f *far) Abandon(ctx context.Context, req backend.Request) error {
	return f.exchange(ctx, "abandon", func() error { return f.Backend.Abandon(ctx, req) })
}

func (f *far) AbandonBatch(ctx context.Context, reqs []backend.Request) (errs []error) {
	_ = f.exchange(ctx, "abandons", func() error { errs = f.Backend.AbandonBatch(ctx, reqs); return nil })
	return errs
}

func (f *far) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

type keeperGrant interface {
	backend.Grant
	backend.Keeper
}

type farGrant struct {
	keeperGrant
	f *far
}

// Until counts from before the request, which is half of the round trip.
func (g *farGrant) Until() time.Time {
	return g.keeperGrant.Until().Add(-cmp.Or(g.f.away, roundTrip) / 2)
}

func (g *farGrant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.f.exchange(ctx, "renew", func() error { return g.keeperGrant.Renew(ctx, ttl) })
}

func (g *farGrant) Release(ctx context.Context) error {
	return g.f.exchange(ctx, "release", func() error { return g.keeperGrant.Release(ctx) })
}

// together renews many at once, as long as they are its own.
type together struct{ *far }

func (f together) RenewBatch(ctx context.Context, all []backend.Renewal) []error {
	errs := make([]error, len(all))
	err := f.exchange(ctx, "batch", func() error {
		for i, r := range all {
			if g, ok := r.Grant.(*farGrant); ok {
				errs[i] = g.keeperGrant.Renew(ctx, r.TTL)
			} else {
				errs[i] = backend.ErrInvalid
			}
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}
