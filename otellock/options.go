package otellock

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option configures New.
type Option func(*config)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	name    func(name string) string
}

func newConfig(opts []Option) config {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// WithMeterProvider sets where metrics go. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters = p }
}

// WithTracerProvider sets where traces go. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.tracers = p }
}

// WithNameAttribute adds the attribute interlock.lock.name to every metric, with
// what group makes of the lock's name; "" adds none. Every value is a set of series
// of its own, so group should return few, such as what is before the first slash.
// It must always return the same for the same name, or held and waiting never come
// back to zero, and is called concurrently. Spans bear the whole name in any case.
func WithNameAttribute(group func(name string) string) Option {
	return func(c *config) { c.name = group }
}
