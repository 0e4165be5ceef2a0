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
	keyMode    = attribute.Key("interlock.mode")
	keyOutcome = attribute.Key("interlock.outcome")
	keyName    = attribute.Key("interlock.lock.name")
)

// buckets, in seconds, reach from a lock in memory to a job of an hour.
var buckets = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

type metrics struct {
	name               func(string) string // the value of keyName for a lock, or nil
	wait, hold         metric.Float64Histogram
	held, waiting      metric.Int64UpDownCounter
	lost, renewsFailed metric.Int64Counter
}

func newMetrics(p metric.MeterProvider, name func(string) string) (*metrics, error) {
	m := p.Meter(scope)
	out := &metrics{name: name}
	errs := make([]error, 6)
	out.wait, errs[0] = m.Float64Histogram("interlock.lock.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the call of Lock or TryLock to its end."), metric.WithExplicitBucketBoundaries(buckets...))
	out.hold, errs[1] = m.Float64Histogram("interlock.lock.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the grant of a lease to its end."), metric.WithExplicitBucketBoundaries(buckets...))
	out.held, errs[2] = m.Int64UpDownCounter("interlock.lock.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases held now."))
	out.waiting, errs[3] = m.Int64UpDownCounter("interlock.lock.waiting", metric.WithUnit("{waiter}"),
		metric.WithDescription("Calls of Lock that wait for a held lock now."))
	out.lost, errs[4] = m.Int64Counter("interlock.lock.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases lost before or at Unlock."))
	out.renewsFailed, errs[5] = m.Int64Counter("interlock.lock.renewal.failures", metric.WithUnit("{renewal}"),
		metric.WithDescription("Renewals that failed while the lease was still trusted."))
	return out, errors.Join(errs...)
}

// attributes returns the attributes of a measurement.
func (m *metrics) attributes(e lock.Event, outcome string) metric.MeasurementOption {
	set := append(make([]attribute.KeyValue, 0, 4), keyBackend.String(valid(e.Backend)), keyMode.String(e.Share.Mode()))
	if outcome != "" {
		set = append(set, keyOutcome.String(outcome))
	}
	if m.name != nil {
		if name := m.name(e.Name); name != "" {
			set = append(set, keyName.String(valid(name)))
		}
	}
	return metric.WithAttributeSet(attribute.NewSet(set...))
}

// begin counts the beginning of a lease or of a wait in c.
func (m *metrics) begin(ctx context.Context, c metric.Int64UpDownCounter, e lock.Event) {
	c.Add(ctx, 1, m.attributes(e, ""))
}

// initRare creates the counters of rare events with the value 0: Prometheus sees no
// increase in a series that begins with 1.
func (m *metrics) initRare(ctx context.Context, e lock.Event) {
	attributes := m.attributes(e, "")
	m.lost.Add(ctx, 0, attributes)
	m.renewsFailed.Add(ctx, 0, attributes)
}

// endCall records the end of a call of Lock or TryLock.
func (m *metrics) endCall(ctx context.Context, e lock.Event, outcome string) {
	m.wait.Record(ctx, e.Wait.Seconds(), m.attributes(e, outcome))
	if e.Waited {
		m.waiting.Add(ctx, -1, m.attributes(e, ""))
	}
}

// endLease records the end of a lease.
func (m *metrics) endLease(ctx context.Context, e lock.Event, outcome string) {
	m.hold.Record(ctx, e.Held.Seconds(), m.attributes(e, outcome))
	m.held.Add(ctx, -1, m.attributes(e, ""))
	if outcome == outcomeLost {
		m.lost.Add(ctx, 1, m.attributes(e, ""))
	}
}
