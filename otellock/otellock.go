package otellock

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
)

// scope is the name of the instrumentation.
const scope = "github.com/interlock-go/lock/otellock"

// New returns an observer for lock.WithObserver, which any number of clients may
// share. It fails if the meter provider refuses an instrument.
func New(opts ...Option) (*lock.Observer, error) {
	cfg := newConfig(opts)
	m, err := newMetrics(cfg.meters, cfg.name)
	if err != nil {
		return nil, fmt.Errorf("otellock: %w", err)
	}
	t := newTraces(cfg.tracers)
	// A measurement must not depend on whether the caller's context has ended.
	values := context.WithoutCancel
	ended := func(ctx context.Context, e lock.Event, outcome string) {
		m.ended(values(ctx), e, outcome)
		t.ended(e, outcome)
	}
	return &lock.Observer{
		Waiting: func(ctx context.Context, e lock.Event) { m.begins(values(ctx), m.waiting, e) },
		Acquired: func(ctx context.Context, e lock.Event) {
			m.called(values(ctx), e, outcomeAcquired)
			m.begins(values(ctx), m.held, e)
			m.present(values(ctx), e)
			t.acquired(values(ctx), e)
		},
		Failed: func(ctx context.Context, e lock.Event) {
			outcome := failure(e.Err)
			m.called(values(ctx), e, outcome)
			t.called(values(ctx), e, outcome, time.Now())
		},
		Released: func(ctx context.Context, e lock.Event) { ended(ctx, e, ending(e.Err)) },
		RenewFailed: func(ctx context.Context, e lock.Event) {
			m.unrenewed.Add(values(ctx), 1, m.with(e, ""))
			t.renewFailed(e)
		},
		Lost: func(ctx context.Context, e lock.Event) { ended(ctx, e, outcomeLost) },
	}, nil
}
