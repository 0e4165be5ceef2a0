package handoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/cleanup"
	"github.com/interlock-go/lock/internal/handoff"
	"github.com/interlock-go/lock/internal/task"
	"github.com/interlock-go/lock/memlock"
)

func newBackend(t *testing.T, s *memlock.Space) *handoff.Backend {
	t.Helper()
	inner := s.Backend()
	b, err := handoff.New(inner, inner.Capabilities(), &cleanup.Cleaner{Tasks: task.New(), Caps: inner.Capabilities(), Failed: func(string, string, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

func request(owner string) backend.Request {
	return backend.Request{Key: "k", Owner: owner, TTL: time.Minute, OnWait: func(*backend.LockedError) {}}
}

// A request that has ended may be abandoned when another request uses the grant of its
// attempt. That grant stays.
func TestAbandonOfASharedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		holder, err := space.Backend().TryAcquire(t.Context(), request("holder"))
		if err != nil {
			t.Fatal(err)
		}
		b := newBackend(t, space)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, request("first"))
			first <- err
		}()
		synctest.Wait()
		second := make(chan backend.Grant, 1)
		go func() {
			g, err := b.Acquire(t.Context(), request("second"))
			if err != nil {
				t.Error(err)
			}
			second <- g
		}()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) || backend.OutcomeUnknown(err) {
			t.Fatalf("the first request: want context.Canceled with a known outcome, got %v", err)
		}
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		g := <-second
		if err := b.Abandon(t.Context(), request("first")); err != nil {
			t.Fatal(err)
		}
		info, err := space.Backend().Inspect(t.Context(), "k")
		if err != nil || info.Holder == nil || info.Holder.Owner != "first" {
			t.Fatalf("want the grant of the first attempt in use, got %+v, %v", info.Holder, err)
		}
		if err := g.Renew(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := b.Abandon(t.Context(), request("second")); err != nil {
			t.Fatal(err)
		}
		if info, err = space.Backend().Inspect(t.Context(), "k"); err != nil || info.Holder != nil {
			t.Fatalf("Abandon of the request that has the turn: want the key free, got %+v, %v", info.Holder, err)
		}
	})
}

func TestWhatABackendLacks(t *testing.T) {
	b, err := handoff.New(onlyWaits{memlock.New()}, backend.Capabilities{}, &cleanup.Cleaner{})
	if err != nil {
		t.Fatal(err)
	}
	_, inspect := b.Inspect(t.Context(), "k")
	_, broken := b.Break(t.Context(), "k")
	for name, err := range map[string]error{"Inspect": inspect, "Break": broken, "List": b.List(t.Context(), nil)} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: want errors.ErrUnsupported, got %v", name, err)
		}
	}
}

// onlyWaits hides the optional interfaces of a backend but Waiter.
type onlyWaits struct {
	waiter
}

type waiter interface {
	backend.Backend
	backend.Waiter
}
