package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/interlock-go/lock/backend"
)

// TestLateRequest executes a request to acquire after its attempt was abandoned. Other requests of the session go on.
func TestLateRequest(t *testing.T) {
	b, n := lossy(t)
	other := try(t, b, request("other", time.Minute))
	for _, share := range []backend.Share{{}, backend.Reader, {Weight: 1, Capacity: 2}} {
		for how, acquire := range acquirers(b) {
			n.set("request")
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			req := request("k", time.Minute)
			req.Share = share
			if _, err := acquire(ctx, req); !backend.OutcomeUnknown(err) {
				t.Errorf("%s, %v: want an unknown outcome, got %v", how, share, err)
			}
			cancel()
			n.set("")
			if err := b.Abandon(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if err := n.late(); err != nil {
				t.Fatal(err)
			}
			if i := inspect(t, b, "k"); i.Holder != nil {
				t.Errorf("%s, %v: want a free key, got %+v", how, share, i)
			}
			release(t, try(t, b, request("k", time.Minute)))
		}
	}
	release(t, other)
}

// acquirers are the two ways to acquire.
func acquirers(b *Backend) map[string]func(context.Context, backend.Request) (backend.Grant, error) {
	return map[string]func(context.Context, backend.Request) (backend.Grant, error){"try": b.TryAcquire, "wait": b.Acquire}
}

// TestLateRequestAfterARelease: the servers execute a request after a later one of the attempt was answered, and its grant
// released.
func TestLateRequestAfterARelease(t *testing.T) {
	b, n := lossy(t)
	other := try(t, b, request("other", time.Minute))
	for how, acquire := range acquirers(b) {
		n.set("request once")
		g, err := acquire(t.Context(), request("k", time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		release(t, g)
		if err := n.late(); err != nil {
			t.Fatal(err)
		}
		if i := inspect(t, b, "k"); i.Holder != nil {
			t.Errorf("%s: want a free key, got %+v", how, i)
		}
	}
	release(t, other)
}

// TestKnownOutcome checks which errors say that a request was certainly not executed.
func TestKnownOutcome(t *testing.T) {
	b, n := lossy(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for how, acquire := range acquirers(b) {
		release(t, try(t, b, request("k", time.Minute)))
		n.answer(rpctypes.ErrGRPCNoSpace, 1)
		req := request("k", time.Minute)
		if _, err := acquire(t.Context(), req); err == nil || backend.OutcomeUnknown(err) {
			t.Errorf("%s, refused by the server: want an error with a known outcome, got %v", how, err)
		}
		if _, err := acquire(ended, request("k", time.Minute)); !errors.Is(err, context.Canceled) || backend.OutcomeUnknown(err) {
			t.Errorf("%s with a context that has ended: want context.Canceled with a known outcome, got %v", how, err)
		}
	}
}
