package memlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// A context that ends around the moment of the grant leaves neither a holder nor a waiter.
func TestCancelRaces(t *testing.T) {
	s := NewSpace()
	b := s.Backend()
	for round := range 300 {
		g := must(b.TryAcquire(t.Context(), request("k", time.Minute)))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if g, err := b.Acquire(ctx, request("k", time.Minute)); err == nil {
					if err := g.Release(t.Context()); err != nil {
						t.Error(err)
					}
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			spin(rand.IntN(50 * (round%20 + 1)))
			cancel()
		})
		spin(rand.IntN(50 * (round%20 + 1)))
		if err := g.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		cancel()
		wantEmpty(t, s)
	}
}

func spin(n int) {
	for range n {
		runtime.Gosched()
	}
}

// A hold expires, its only waiter gives up and its holder releases in one instant.
func TestExpiryRacesRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSpace()
		b := s.Backend()
		for range 2000 {
			g := must(b.TryAcquire(t.Context(), request("k", 50*time.Millisecond)))(t)
			var waiter sync.WaitGroup
			waiter.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				req := request("k", 50*time.Millisecond)
				if _, err := b.Acquire(ctx, req); err == nil {
					_ = b.Abandon(t.Context(), req)
				}
			})
			time.Sleep(50 * time.Millisecond)
			_ = g.Release(t.Context())
			waiter.Wait()
		}
		wantEmpty(t, s)
	})
}

func TestExclusion(t *testing.T) {
	ctx, s := t.Context(), NewSpace()
	var wg sync.WaitGroup
	var last uint64 // and n: guarded by the lock under test
	n := 0
	for range 20 {
		wg.Go(func() {
			b := s.Backend()
			for range 50 {
				g, err := b.Acquire(ctx, request("k", time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				n++
				if g.Token() <= last {
					t.Errorf("token %d after %d", g.Token(), last)
				}
				last = g.Token()
				if err := g.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n != 1000 {
		t.Fatalf("counted %d, want 1000", n)
	}
	wantEmpty(t, s)
}

// A wait that begins around the moment of Close ends, and leaves no waiter. Waits of other
// Backends go on.
func TestCloseRaces(t *testing.T) {
	s := NewSpace()
	other := s.Backend()
	for round := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		g := must(other.TryAcquire(ctx, request("k", time.Minute)))(t)
		var waits sync.WaitGroup
		waits.Go(func() {
			g := must(other.Acquire(ctx, request("k", time.Minute)))(t)
			if err := g.Release(ctx); err != nil {
				t.Error(err)
			}
		})
		b := s.Backend()
		for range 4 {
			waits.Go(func() {
				if _, err := b.Acquire(ctx, request("k", time.Minute)); !errors.Is(err, backend.ErrClosed) {
					t.Errorf("Acquire: got error %v, want one that matches ErrClosed", err)
				}
			})
		}
		spin(rand.IntN(5 * (round%20 + 1)))
		if err := b.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if err := g.Release(ctx); err != nil {
			t.Fatal(err)
		}
		waits.Wait()
		cancel()
		wantEmpty(t, s)
	}
}
