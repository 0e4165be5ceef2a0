package otellock

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/interlock-go/lock"
)

const (
	keyWaited = attribute.Key("interlock.lock.waited")
	keyToken  = attribute.Key("interlock.lock.token")
)

type traces struct {
	tracer trace.Tracer
	holds  sync.Map // by owner id: the trace.Span of each held lease
}

func newTraces(p trace.TracerProvider) *traces { return &traces{tracer: p.Tracer(scope)} }

// valid returns a text for an exporter. A lock's name has any bytes, and the protocol of
// OpenTelemetry refuses a whole batch of spans for one text that is not UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// endCall records the span of a call of Lock or TryLock that has ended now.
func (t *traces) endCall(ctx context.Context, e lock.Event, outcome string, now time.Time) trace.Span {
	_, s := t.tracer.Start(ctx, "lock.acquire", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(now.Add(-e.Wait)),
		trace.WithAttributes(keyBackend.String(valid(e.Backend)), keyMode.String(e.Share.Mode()), keyName.String(valid(e.Name)), keyOutcome.String(outcome), keyWaited.Bool(e.Waited)))
	if e.Err != nil && outcome != outcomeLocked { // TryLock returns ErrLocked without a failure
		s.SetStatus(codes.Error, valid(e.Err.Error()))
	}
	s.End(trace.WithTimestamp(now))
	return s
}

// beginLease begins the span of a lease.
func (t *traces) beginLease(ctx context.Context, e lock.Event) {
	now := time.Now()
	acquisition := t.endCall(ctx, e, outcomeAcquired, now)
	_, s := t.tracer.Start(ctx, "lock.hold", trace.WithTimestamp(now),
		trace.WithLinks(trace.Link{SpanContext: acquisition.SpanContext()}),
		trace.WithAttributes(keyBackend.String(valid(e.Backend)), keyMode.String(e.Share.Mode()), keyName.String(valid(e.Name))))
	if !s.IsRecording() {
		return
	}
	if e.Token != 0 && e.Token <= math.MaxInt64 {
		s.SetAttributes(keyToken.Int64(int64(e.Token)))
	}
	t.holds.Store(e.Owner, s)
}

// renewFailed adds an event to the span of a lease.
func (t *traces) renewFailed(e lock.Event) {
	if s, ok := t.holds.Load(e.Owner); ok {
		s.(trace.Span).AddEvent("lock.renewal.failed", trace.WithAttributes(attribute.String("exception.message", valid(e.Err.Error()))))
	}
}

// endLease ends the span of a lease.
func (t *traces) endLease(e lock.Event, outcome string) {
	v, ok := t.holds.LoadAndDelete(e.Owner)
	if !ok {
		return
	}
	s := v.(trace.Span)
	s.SetAttributes(keyOutcome.String(outcome))
	if outcome == outcomeLost {
		s.AddEvent("lock.lost", trace.WithAttributes(attribute.String("exception.message", valid(e.Err.Error()))))
	}
	if e.Err != nil {
		s.SetStatus(codes.Error, valid(e.Err.Error()))
	}
	s.End()
}
