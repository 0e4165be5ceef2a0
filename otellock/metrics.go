package otellock

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/interlock-go/lock"
)

const (
	keyBackend = attribute.Key("interlock.backend")
	keyOutcome = attribute.Key("interlock.outcome")
	keyName    = attribute.Key("interlock.lock.name")
)

// seconds is from a lock in memory to a job of an hour.
var seconds = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

type metrics struct {
	name            func(string) string
	wait, hold      metric.Float64Histogram
	held, waiting   metric.Int64UpDownCounter
	lost, unrenewed metric.Int64Counter
}

func newMetrics(p metric.MeterProvider, name func(string) string) (*metrics, error) {
	m := p.Meter(scope)
	out := &metrics{name: name}
	errs := make([]error, 6)
	out.wait, errs[0] = m.Float64Histogram("interlock.lock.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the call of Lock or TryLock to its end."), metric.WithExplicitBucketBoundaries(seconds...))
	out.hold, errs[1] = m.Float64Histogram("interlock.lock.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the grant of a lease to its end."), metric.WithExplicitBucketBoundaries(seconds...))
	out.held, errs[2] = m.Int64UpDownCounter("interlock.lock.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that are held now."))
	out.waiting, errs[3] = m.Int64UpDownCounter("interlock.lock.waiting", metric.WithUnit("{waiter}"),
		metric.WithDescription("Calls of Lock that wait for a held lock now."))
	out.lost, errs[4] = m.Int64Counter("interlock.lock.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended though nobody unlocked them."))
	out.unrenewed, errs[5] = m.Int64Counter("interlock.lock.renewal.failures", metric.WithUnit("{renewal}"),
		metric.WithDescription("Renewals that failed while the lease was still trusted."))
	return out, errors.Join(errs...)
}

// with makes the attributes of a measurement.
func (m *metrics) with(e lock.Event, outcome string) metric.MeasurementOption {
	set := append(make([]attribute.KeyValue, 0, 3), keyBackend.String(e.Backend))
	if outcome != "" {
		set = append(set, keyOutcome.String(outcome))
	}
	if m.name != nil {
		if name := m.name(e.Name); name != "" {
			set = append(set, keyName.String(name))
		}
	}
	return metric.WithAttributeSet(attribute.NewSet(set...))
}

// begins counts a lease, or a wait.
func (m *metrics) begins(ctx context.Context, c metric.Int64UpDownCounter, e lock.Event) {
	c.Add(ctx, 1, m.with(e, ""))
}

// present makes the counters of rare events exist with the first grant: an increase
// from nothing to one is none to Prometheus.
func (m *metrics) present(ctx context.Context, e lock.Event) {
	with := m.with(e, "")
	m.lost.Add(ctx, 0, with)
	m.unrenewed.Add(ctx, 0, with)
}

// called counts the end of a call of Lock or TryLock.
func (m *metrics) called(ctx context.Context, e lock.Event, outcome string) {
	m.wait.Record(ctx, e.Wait.Seconds(), m.with(e, outcome))
	if e.Waited {
		m.waiting.Add(ctx, -1, m.with(e, ""))
	}
}

// ended counts the end of a lease.
func (m *metrics) ended(ctx context.Context, e lock.Event, outcome string) {
	m.hold.Record(ctx, e.Held.Seconds(), m.with(e, outcome))
	m.held.Add(ctx, -1, m.with(e, ""))
	if outcome == outcomeLost {
		m.lost.Add(ctx, 1, m.with(e, ""))
	}
}
