package otellock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/interlock-go/lock"
)

func (p *probe) span(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range p.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q, want 1", len(found), name)
	}
	return found[0]
}

func attr(s tracetest.SpanStub, key string) string {
	for _, kv := range s.Attributes {
		if kv.Key == attribute.Key(key) {
			return kv.Value.String()
		}
	}
	return ""
}

func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		start := time.Now()
		ctx, caller := p.tracers.Tracer("test").Start(t.Context(), "caller")
		l0 := must(t, p.other.Mutex("k"))
		time.AfterFunc(2*time.Second, func() { _ = l0.Unlock(context.Background()) })
		l, err := p.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		_ = l.Unlock(t.Context())
		caller.End()

		acquire, hold := p.span(t, "lock.acquire"), p.span(t, "lock.hold")
		for _, s := range []tracetest.SpanStub{acquire, hold} {
			if s.Parent.SpanID() != caller.SpanContext().SpanID() {
				t.Errorf("%s is not a child of the caller's span", s.Name)
			}
			if attr(s, "interlock.backend") != "mem" || attr(s, "interlock.lock.name") != "k" || s.Status.Code != codes.Unset {
				t.Errorf("%s: %v, %v", s.Name, s.Attributes, s.Status)
			}
		}
		if !acquire.StartTime.Equal(start) || !acquire.EndTime.Equal(start.Add(2*time.Second)) || attr(acquire, "interlock.lock.waited") != "true" {
			t.Errorf("the acquisition is from %v to %v, %v", acquire.StartTime, acquire.EndTime, acquire.Attributes)
		}
		if !hold.StartTime.Equal(start.Add(2*time.Second)) || !hold.EndTime.Equal(start.Add(5*time.Second)) {
			t.Errorf("the hold is from %v to %v", hold.StartTime, hold.EndTime)
		}
		if len(hold.Links) != 1 || hold.Links[0].SpanContext.SpanID() != acquire.SpanContext.SpanID() {
			t.Errorf("the hold is not linked to its acquisition: %v", hold.Links)
		}
		if attr(hold, "interlock.outcome") != "released" || attr(hold, "interlock.lock.token") == "" {
			t.Errorf("hold: %v", hold.Attributes)
		}
	})
}

func TestSpanOfLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		must(t, p.Mutex("k"))
		if _, err := p.other.Break(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		hold := p.span(t, "lock.hold")
		if hold.Status.Code != codes.Error || attr(hold, "interlock.outcome") != "lost" || len(hold.Events) != 1 || hold.Events[0].Name != "lock.lost" {
			t.Errorf("hold: %v, %v, %v", hold.Status, hold.Attributes, hold.Events)
		}
	})
}

func TestSpanOfFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			outcome string
			code    codes.Code
			take    func(lock.Mutex, context.Context) (*lock.Lease, error)
		}{{"locked", codes.Unset, lock.Mutex.TryLock}, {"timeout", codes.Error, lock.Mutex.Lock}} {
			p := newProbe(t)
			must(t, p.other.Mutex("k"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := tt.take(p.Mutex("k"), ctx); err == nil {
				t.Fatal("granted")
			}
			if s := p.span(t, "lock.acquire"); s.Status.Code != tt.code || attr(s, "interlock.outcome") != tt.outcome {
				t.Errorf("%s: %v, %v", tt.outcome, s.Status, s.Attributes)
			}
		}
	})
}
