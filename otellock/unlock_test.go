package otellock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/otellock"
)

// failedRelease is a backend whose releases return an error.
type failedRelease struct {
	backend.Backend
	err error
}

func (b failedRelease) TryAcquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	g, err := b.Backend.TryAcquire(ctx, r)
	return failedReleaseGrant{g, b.err}, err
}

type failedReleaseGrant struct {
	backend.Grant
	err error
}

func (g failedReleaseGrant) Release(context.Context) error { return g.err }

func TestFailedUnlock(t *testing.T) {
	for outcome, tt := range map[string]struct {
		err  error
		lost int64
	}{
		"lost":  {backend.ErrLost, 1},
		"error": {errors.New("connection reset"), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{reader: metric.NewManualReader()}
			o, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(p.reader))))
			if err != nil {
				t.Fatal(err)
			}
			c, err := lock.New(failedRelease{memlock.New(), tt.err}, lock.WithLogger(nil), lock.WithObserver(o))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			if err := must(t, c.Mutex("k")).Unlock(t.Context()); !errors.Is(err, tt.err) {
				t.Fatal(err)
			}
			got := p.metrics(t)
			if got["interlock.lock.hold.duration{backend=mem mode=exclusive outcome="+outcome+"}"] != 1 || got["interlock.lock.lost{backend=mem mode=exclusive}"] != tt.lost || got["interlock.lock.held{backend=mem mode=exclusive}"] != 0 {
				t.Errorf("%s: %v", outcome, got)
			}
		})
	}
}
