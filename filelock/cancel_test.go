//go:build unix

package filelock

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// A context that ends around the moment of the grant leaves neither a holder nor a waiter,
// no ticket, no open file, no watch and no goroutine.
func TestCancelRaces(t *testing.T) {
	dir := t.TempDir()
	before := fds(t)
	a, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	release(t, try(t, a, "k"))
	for round := range 60 {
		g := try(t, a, "k")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 4 {
			b := []*Backend{a, b}[i%2]
			wg.Go(func() {
				req := request("k")
				req.OnLost = func(err error) { t.Errorf("a loss was reported: %v", err) }
				g, err := b.Acquire(ctx, req)
				if err == nil {
					err = g.Release(context.Background())
				} else if errors.Is(err, context.Canceled) && !errors.Is(err, backend.ErrUncertain) {
					err = nil
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			delay(round * 20)
			cancel()
		})
		delay(rand.IntN(round*20 + 1))
		release(t, g)
		wg.Wait()
		cancel()
		wantNoTickets(t, a, "k")
		wantNoTickets(t, b, "k")
	}
	if canWatch && a.watches()+b.watches() != 0 {
		t.Errorf("%d watches left", a.watches()+b.watches())
	}
	for _, b := range []*Backend{a, b} {
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := fds(t); after > before+2 { // the runtime's poller opens two, once
		t.Errorf("%d open files before, %d after", before, after)
	}
	eventually(t, "no goroutine of the package is left", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "filelock.(*")
	})
}

// delay is a sweep of some microseconds, not a wait for anything.
func delay(micros int) {
	for end := time.Now().Add(time.Duration(micros) * time.Microsecond); time.Now().Before(end); {
		runtime.Gosched()
	}
}
