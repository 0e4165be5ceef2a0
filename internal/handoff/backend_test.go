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
	cleaner := &cleanup.Cleaner{Tasks: task.New(), Caps: inner.Capabilities(), Failed: func(string, string, error) {}}
	b, err := handoff.New(inner, inner.Capabilities(), cleaner)
	cleaner.Backend = b
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

// A break that names a turn removes no other turn of its grant.
func TestBreakOfATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, memlock.NewSpace())
		first, err := b.Acquire(t.Context(), request("first"))
		if err != nil {
			t.Fatal(err)
		}
		waiting := func(owner string) <-chan backend.Grant {
			granted := make(chan backend.Grant, 1)
			go func() {
				g, err := b.Acquire(t.Context(), request(owner))
				if err != nil {
					t.Error(err)
				}
				granted <- g
			}()
			synctest.Wait()
			return granted
		}
		second := waiting("second")
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		g := <-second
		var locked *backend.LockedError
		if removed, err := b.Break(t.Context(), "k", "first"); removed != nil || !errors.As(err, &locked) || locked.Holder.Owner != "second" {
			t.Fatalf("Break of an earlier turn: want a LockedError with the present one, got %+v, %v", removed, err)
		}
		if err := g.Renew(t.Context(), time.Minute); err != nil {
			t.Fatalf("the present turn after a break of an earlier one: %v", err)
		}
		third := waiting("third")
		if removed, err := b.Break(t.Context(), "k", "second"); err != nil || removed == nil || removed.Owner != "second" {
			t.Fatalf("Break of the present turn: want its holder, got %+v, %v", removed, err)
		}
		if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
			t.Fatalf("the broken turn: want ErrLost, got %v", err)
		}
		g = <-third
		if err := g.Renew(t.Context(), time.Minute); err != nil {
			t.Fatalf("the turn after a broken one: %v", err)
		}
	})
}

func TestWhatABackendLacks(t *testing.T) {
	b, err := handoff.New(onlyWaits{memlock.New()}, backend.Capabilities{}, &cleanup.Cleaner{})
	if err != nil {
		t.Fatal(err)
	}
	_, inspect := b.Inspect(t.Context(), "k")
	_, broken := b.Break(t.Context(), "k", "")
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
