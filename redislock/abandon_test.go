package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Abandon leaves a tombstone if a request of the attempt may still be executed, and only then.
func TestTombstone(t *testing.T) {
	p := newPrefix()
	b, c := newBackend(t, p), client(t, sharedServer(t))
	tombstone := func(r backend.Request) time.Duration {
		return c.PTTL(t.Context(), b.svc.proc.Keys("k").Tombstone(r.Owner)).Val()
	}
	g := take(t, b, request("k"))
	ctx, cancel := context.WithCancel(t.Context())
	r := request("k")
	ch := enqueue(ctx, t, b, r)
	cancel()
	<-ch
	must(t, b.Abandon(t.Context(), r))
	if d := tombstone(r); d > 0 {
		t.Errorf("an attempt of which each request had a reply is refused for %v", d)
	}
	if n := c.Exists(t.Context(), b.svc.proc.Keys("k").Queue).Val(); n != 0 {
		t.Error("it is still in the queue")
	}
	late := request("k") // which arrives after it was abandoned
	must(t, b.Abandon(t.Context(), late))
	if d := tombstone(late); d < protocol.TombstoneTTL-time.Minute || d > protocol.TombstoneTTL {
		t.Errorf("it is refused for %v", d)
	}
	if _, err := b.Acquire(t.Context(), late); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("beside a holder: %v", err)
	}
	must(t, g.Release(t.Context()))
	if _, err := b.TryAcquire(t.Context(), late); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("of a free key: %v", err)
	}
	r = request("k")
	must(t, take(t, b, r).Release(t.Context()))
	if d := tombstone(r); d > 0 {
		t.Errorf("an attempt whose grant was released is refused for %v", d)
	}
}

// Abandon finds the place of an attempt of another process by its owner id.
func TestAbandonFromElsewhere(t *testing.T) {
	p := newPrefix()
	b, b2, c := newBackend(t, p), newBackend(t, p), client(t, sharedServer(t))
	g := take(t, b, request("k"))
	ctx, cancel := context.WithCancel(t.Context())
	r := request("k")
	ch, next := enqueue(ctx, t, b, r), enqueue(t.Context(), t, b, request("k"))
	other := r
	other.TTL, other.Metadata = time.Second, "x"
	must(t, b2.Abandon(t.Context(), other))
	if n := c.ZCard(t.Context(), b.svc.proc.Keys("k").Queue).Val(); n != 1 {
		t.Errorf("%d in the queue, want the other waiter", n)
	}
	cancel()
	<-ch
	must(t, g.Release(t.Context()))
	must(t, get(t, next).Release(t.Context()))
}
