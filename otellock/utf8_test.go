package otellock_test

import (
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/otellock"
)

// An exporter refuses a batch with a text that is not UTF-8, together with the spans of
// the application.
func TestTextsAreUTF8(t *testing.T) {
	p := newProbe(t, otellock.WithNameAttribute(func(name string) string { return name }))
	const name = "order/\xff\x00\x07"
	l := must(t, p.Mutex(name))
	if _, err := p.Mutex(name).TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Fatal(err)
	}
	if _, err := p.Mutex(name, lock.WithTTL(time.Nanosecond)).TryLock(t.Context()); !errors.Is(err, lock.ErrInvalid) {
		t.Fatal(err)
	}
	if _, err := p.other.Break(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	<-l.Context().Done()
	if err := p.tracers.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(what string, attributes []attribute.KeyValue) {
		for _, a := range attributes {
			if !utf8.ValidString(a.Value.String()) {
				t.Errorf("%s: the attribute %s is %q", what, a.Key, a.Value.String())
			}
		}
	}
	named := false
	for _, s := range p.spans.GetSpans() {
		check(s.Name, s.Attributes)
		for _, a := range s.Attributes {
			named = named || a.Value.String() == "order/\uFFFD\x00\x07"
		}
		for _, e := range s.Events {
			check(s.Name+" "+e.Name, e.Attributes)
		}
		if !utf8.ValidString(s.Status.Description) {
			t.Errorf("%s: the status is %q", s.Name, s.Status.Description)
		}
	}
	if !named {
		t.Error("no span has the name of the lock")
	}
	for series := range p.metrics(t) {
		if !utf8.ValidString(series) {
			t.Errorf("the series %q", series)
		}
	}
}
