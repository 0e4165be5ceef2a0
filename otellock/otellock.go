package otellock

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
)

// scope is the name of the instrumentation.
const scope = "github.com/interlock-go/lock/otellock"

// New returns an observer for lock.WithObserver. Any number of clients may share it. New
// returns an error if the meter provider refuses an instrument.
func New(opts ...Option) (*lock.Observer, error) {
	cfg := newConfig(opts)
	m, err := newMetrics(cfg.meters, cfg.name)
	if err != nil {
		return nil, fmt.Errorf("otellock: %w", err)
	}
	t := newTraces(cfg.tracers)
	// The caller's context may have ended; measurements ignore that.
	values := context.WithoutCancel
	endLease := func(ctx context.Context, e lock.Event, outcome string) {
		m.endLease(values(ctx), e, outcome)
		t.endLease(e, outcome)
	}
	return &lock.Observer{
		Waiting: func(ctx context.Context, e lock.Event) { m.begin(values(ctx), m.waiting, e) },
		Acquired: func(ctx context.Context, e lock.Event) {
			m.endCall(values(ctx), e, outcomeAcquired)
			m.begin(values(ctx), m.held, e)
			m.initRare(values(ctx), e)
			t.beginLease(values(ctx), e)
		},
		Failed: func(ctx context.Context, e lock.Event) {
			outcome := outcomeOfCall(e.Err)
			m.endCall(values(ctx), e, outcome)
			t.endCall(values(ctx), e, outcome, time.Now())
		},
		Released: func(ctx context.Context, e lock.Event) { endLease(ctx, e, outcomeOfUnlock(e.Err)) },
		RenewFailed: func(ctx context.Context, e lock.Event) {
			m.renewsFailed.Add(values(ctx), 1, m.attributes(e, ""))
			t.renewFailed(e)
		},
		Lost: func(ctx context.Context, e lock.Event) { endLease(ctx, e, outcomeLost) },
	}, nil
}
