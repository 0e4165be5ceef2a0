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

// WithMeterProvider sets the provider of the metrics. The default is the global one.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters = p }
}

// WithTracerProvider sets the provider of the traces. The default is the global one.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.tracers = p }
}

// WithNameAttribute adds the attribute interlock.lock.name to each metric, with the value
// group(name); "" adds no attribute. Each value is a set of series, so group should return
// few values, for example the part of the name before the first slash. group is called
// concurrently and must return the same value for the same name, or held and waiting do
// not return to zero. Spans always have the whole name.
func WithNameAttribute(group func(name string) string) Option {
	return func(c *config) { c.name = group }
}
