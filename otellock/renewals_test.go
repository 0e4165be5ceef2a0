package otellock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/otellock"
)

// noRenewal is a backend whose renewals fail.
type noRenewal struct{ backend.Backend }

func (b noRenewal) TryAcquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	g, err := b.Backend.TryAcquire(ctx, r)
	return noRenewalGrant{g}, err
}

type noRenewalGrant struct{ backend.Grant }

func (noRenewalGrant) Renew(context.Context, time.Duration) error {
	return errors.New("connection reset")
}

func TestFailedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
		o, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(p.reader))),
			otellock.WithTracerProvider(trace.NewTracerProvider(trace.WithSyncer(p.spans))))
		if err != nil {
			t.Fatal(err)
		}
		c, err := lock.New(noRenewal{memlock.New()}, lock.WithLogger(nil), lock.WithTTL(time.Minute), lock.WithObserver(o))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		l := must(t, c.Mutex("k"))
		<-l.Done()
		synctest.Wait()
		got, s := p.metrics(t), p.span(t, "lock.hold")
		failures := got["interlock.lock.renewal.failures{backend=mem mode=exclusive}"]
		if failures < 2 || got["interlock.lock.lost{backend=mem mode=exclusive}"] != 1 || got["interlock.lock.held{backend=mem mode=exclusive}"] != 0 {
			t.Errorf("metrics: %v", got)
		}
		if int64(len(s.Events)) != failures+1 || s.Events[0].Name != "lock.renewal.failed" {
			t.Errorf("events of the span: %v", s.Events)
		}
	})
}
