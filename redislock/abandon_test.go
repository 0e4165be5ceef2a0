package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

func TestCancelledWaiterIsSkipped(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	g := take(t, b, request("k"))
	ctx, cancel := context.WithCancel(t.Context())
	r1 := request("k")
	c1 := queue(ctx, t, b, r1)
	c2 := queue(t.Context(), t, b2, request("k"))
	cancel()
	a := <-c1
	if !errors.Is(a.Err, context.Canceled) || !isUncertain(a.Err) {
		t.Fatalf("cancelled: %v", a.Err)
	}
	// before it is abandoned its turn may come: returned to the sender
	must(t, g.Release(t.Context()))
	g2 := get(t, c2)
	must(t, b.Abandon(t.Context(), r1))
	must(t, b.Abandon(t.Context(), r1))
	if time.Until(g2.Until()) <= 0 {
		t.Error("late")
	}
	must(t, g2.Release(t.Context()))
	if _, err := b.Acquire(ctx, request("k")); !errors.Is(err, context.Canceled) || isUncertain(err) {
		t.Errorf("with a dead context: %v", err)
	}
}

// Abandon writes a tombstone unless every request of the attempt had a reply.
func TestTombstone(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	g := take(t, b, request("k"))
	ctx, cancel := context.WithCancel(t.Context())
	r := request("k")
	ch := queue(ctx, t, b, r)
	cancel()
	<-ch
	must(t, b.Abandon(t.Context(), r))
	k := b.proc.Keys("k")
	if n := b.srv.Client.Exists(t.Context(), k.Tombstone(r.Owner)).Val(); n != 0 {
		t.Error("a tombstone for an attempt that was answered")
	}
	if n := b.srv.Client.ZCard(t.Context(), k.Queue).Val(); n != 0 {
		t.Error("it is still in the queue")
	}
	// a request that arrives after its attempt was abandoned is refused, waiting or not
	late := request("k")
	must(t, b.Abandon(t.Context(), late))
	if d := b.srv.Client.PTTL(t.Context(), k.Tombstone(late.Owner)).Val(); d < protocol.TombstoneTTL-time.Minute {
		t.Errorf("tombstone for %v", d)
	}
	if _, err := b.Acquire(t.Context(), late); err == nil || errors.Is(err, backend.ErrLocked) {
		t.Errorf("late enqueue: %v", err)
	}
	must(t, g.Release(t.Context()))
	if _, err := b.TryAcquire(t.Context(), late); err == nil {
		t.Error("late acquire was granted")
	}
	// a grant after an unanswered request leaves one at its release, others do not
	req := request("k")
	g1 := take(t, b, req).(*grant)
	must(t, g1.Release(t.Context()))
	if b.srv.Client.Exists(t.Context(), k.Tombstone(req.Owner)).Val() != 0 {
		t.Error("tombstone after an ordinary release")
	}
	req = request("k")
	g1 = take(t, b, req).(*grant)
	g1.a.unanswered.Store(true)
	must(t, g1.Release(t.Context()))
	if _, err := b.TryAcquire(t.Context(), req); err == nil {
		t.Error("a late duplicate was granted")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.settled)+len(b.attempts) != 0 {
		t.Errorf("remembered: %d settled, %d attempts", len(b.settled), len(b.attempts))
	}
}

// Abandon finds the attempt of another process by its owner id.
func TestAbandonFromElsewhere(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	g := take(t, b, request("k"))
	r := request("k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch := queue(ctx, t, b, r)
	other := r
	other.TTL, other.Metadata = time.Second, "x"
	must(t, b2.Abandon(t.Context(), other))
	if n := b.srv.Client.ZCard(t.Context(), b.proc.Keys("k").Queue).Val(); n != 0 {
		t.Error("still in the queue")
	}
	cancel()
	<-ch
	must(t, g.Release(t.Context()))
}
