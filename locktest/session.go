package locktest

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// session is the backend of a client: one in memory, which an outage cuts off.
type session struct {
	*memlock.Backend
	s *Service
}

func (s *Service) session() *session { return &session{s.space.Backend(), s} }

func (b *session) Capabilities() backend.Capabilities {
	c := b.Backend.Capabilities()
	c.Name, c.Caveats = scheme, []string{"It is for tests."}
	return c
}

func (b *session) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := b.s.reach(); err != nil {
		return nil, err
	}
	return b.wrap(b.Backend.TryAcquire(ctx, req))
}

func (b *session) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := b.s.reach(); err != nil {
		return nil, err
	}
	return b.wrap(b.Backend.Acquire(ctx, req))
}

func (b *session) wrap(g backend.Grant, err error) (backend.Grant, error) {
	if err != nil {
		return nil, err
	}
	return &grant{g, b.s}, nil
}

func (b *session) Abandon(ctx context.Context, req backend.Request) error {
	if err := b.s.reach(); err != nil {
		return err
	}
	return b.Backend.Abandon(ctx, req)
}

func (b *session) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	errs := make([]error, len(reqs))
	for i, req := range reqs {
		errs[i] = b.Abandon(ctx, req)
	}
	return errs
}

func (b *session) Inspect(ctx context.Context, key string) (backend.Info, error) {
	if err := b.s.reach(); err != nil {
		return backend.Info{}, err
	}
	return b.Backend.Inspect(ctx, key)
}

func (b *session) List(ctx context.Context, yield func(backend.Info) bool) error {
	if err := b.s.reach(); err != nil {
		return err
	}
	return b.Backend.List(ctx, yield)
}

func (b *session) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	if err := b.s.reach(); err != nil {
		return nil, err
	}
	return b.Backend.Break(ctx, key, owner)
}

func (b *session) Ping(ctx context.Context) error {
	if err := b.s.reach(); err != nil {
		return err
	}
	return b.Backend.Ping(ctx)
}

type grant struct {
	backend.Grant
	s *Service
}

func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	if err := g.s.reach(); err != nil {
		return err
	}
	return g.Grant.Renew(ctx, ttl)
}

func (g *grant) Release(ctx context.Context) error {
	if err := g.s.reach(); err != nil {
		return err
	}
	return g.Grant.Release(ctx)
}

func (g *grant) Downgrade(ctx context.Context) error {
	if err := g.s.reach(); err != nil {
		return err
	}
	return g.Grant.(backend.Downgrader).Downgrade(ctx)
}

func (g *grant) Slots() []int { return g.Grant.(backend.SlotHolder).Slots() }

func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	if err := g.s.reach(); err != nil {
		return err
	}
	return g.Grant.(backend.Keeper).Keep(ctx, d)
}
