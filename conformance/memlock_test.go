package conformance_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/memlock"
)

func memHarness() conformance.Harness {
	space := memlock.NewSpace()
	admin := space.Backend()
	var guard sync.Mutex
	seen := map[string]uint64{} // by the guarded resources
	return conformance.Harness{
		Name:   "mem",
		Budget: conformance.Budget{WakesPerRelease: 1, DeadProcess: 100 * time.Millisecond},
		Open:   func(context.Context) (backend.Backend, error) { return space.Backend(), nil },
		OpenPrefix: func(_ context.Context, prefix string) (backend.Backend, error) {
			return space.Backend(memlock.WithPrefix(prefix)), nil
		},
		Leftovers: func(ctx context.Context, key string) ([]string, error) {
			info, err := admin.Inspect(ctx, key)
			var left []string
			if info.Holder != nil {
				left = append(left, "holder "+info.Holder.Owner)
			}
			for _, w := range info.Waiters {
				left = append(left, "waiter "+w.Owner)
			}
			return left, err
		},
		DestroyState: func(ctx context.Context, key string) error {
			info, err := admin.Inspect(ctx, key)
			if err != nil || info.Holder == nil {
				return err
			}
			return admin.Abandon(ctx, backend.Request{Key: key, Owner: info.Holder.Owner})
		},
		KeepsFence: true,
		GuardedWrite: func(_ context.Context, key string, token uint64) error {
			guard.Lock()
			defer guard.Unlock()
			if token < seen[key] {
				return errors.New("stale token")
			}
			seen[key] = token
			return nil
		},
	}
}

func TestMemlock(t *testing.T) {
	conformance.Run(t, memHarness(), keep(t))
}

// TestFull runs the long tier, so that its greater numbers are tried too.
func TestFull(t *testing.T) {
	if os.Getenv("LOCK_TEST_ALL") == "" {
		t.Skip("left out: the long tier of the suite (LOCK_TEST_ALL=1 runs it)")
	}
	h := memHarness()
	h.Name = "mem, long tier"
	conformance.Run(t, h, conformance.Full())
}

// TestLocalHandOff holds clients with local hand-off to all that they declare.
func TestLocalHandOff(t *testing.T) {
	h := memHarness()
	h.Name = "mem, local hand-off"
	conformance.Run(t, h, conformance.Clients(lock.WithLocalHandOff()))
}
