package otellock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/otellock"
)

// probe is an observed client, and another client of the same locks.
type probe struct {
	*lock.Client
	other   *lock.Client
	reader  *metric.ManualReader
	spans   *tracetest.InMemoryExporter
	tracers *trace.TracerProvider
}

// newProbe returns a probe whose clients are closed with the test.
func newProbe(t *testing.T, opts ...otellock.Option) *probe {
	t.Helper()
	p := &probe{reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	p.tracers = trace.NewTracerProvider(trace.WithSyncer(p.spans))
	o, err := otellock.New(append([]otellock.Option{
		otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(p.reader))), otellock.WithTracerProvider(p.tracers)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	space := memlock.NewSpace()
	open := func(opts ...lock.Option) *lock.Client {
		c, err := lock.New(space.Backend(), append(opts, lock.WithTTL(time.Minute), lock.WithLogger(nil))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	p.Client, p.other = open(lock.WithObserver(o)), open()
	return p
}

func must(t *testing.T, m lock.Mutex) *lock.Lease {
	t.Helper()
	l, err := m.TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// metrics returns the value of each series "name{attributes}", for a histogram its count.
func (p *probe) metrics(t *testing.T) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, m := range p.collect(t) {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, d := range data.DataPoints {
				out[m.Name+"{"+d.Attributes.Encoded(encoder{})+"}"] = d.Value
			}
		case metricdata.Histogram[float64]:
			for _, d := range data.DataPoints {
				out[m.Name+"{"+d.Attributes.Encoded(encoder{})+"}"] = int64(d.Count)
			}
		default:
			t.Fatalf("%s is a %T", m.Name, data)
		}
	}
	return out
}

func (p *probe) collect(t *testing.T) []metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := p.reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	var out []metricdata.Metrics
	for _, s := range rm.ScopeMetrics {
		out = append(out, s.Metrics...)
	}
	return out
}

func (p *probe) want(t *testing.T, want map[string]int64) {
	t.Helper()
	got := p.metrics(t)
	if fmt.Sprint(got) != fmt.Sprint(want) { // sorted by key
		t.Errorf("metrics:\n got %v\nwant %v", got, want)
	}
}
