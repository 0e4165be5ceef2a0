package conformance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// faultsOfOverlaps are found by requests and outages that meet a change of the lease.
var faultsOfOverlaps = []fault{
	{
		name: "a grant to a waiter is provisional for its first second",
		build: func(w *wrap, _ *service) {
			w.grant = func(req backend.Request, g backend.Grant) backend.Grant {
				granted := time.Now()
				var until atomic.Value
				until.Store(granted.Add(min(req.TTL, 3*time.Second)))
				return &wrapGrant{
					Grant: g,
					until: func() time.Time { return until.Load().(time.Time) },
					renew: func(ctx context.Context, ttl time.Duration) error {
						if time.Since(granted) < time.Second {
							return backend.NotExecuted(errors.New("too early"))
						}
						sent := time.Now()
						err := g.Renew(ctx, ttl)
						if err == nil {
							until.Store(sent.Add(ttl))
						}
						return err
					},
				}
			}
		},
		harness: overWire,
		slows:   true, // it refuses renewals in many cases
		must:    []string{"lease/23-outage-after-push"},
	},
	{
		name:  "compares tokens as floating-point numbers",
		build: func(*wrap, *service) {},
		harness: func(h *conformance.Harness, _ *service) {
			var mu sync.Mutex
			seen := map[string]float64{}
			h.GuardedWrite = func(_ context.Context, key string, token uint64) error {
				mu.Lock()
				defer mu.Unlock()
				if float64(token) < seen[key] {
					return errors.New("stale token")
				}
				seen[key] = float64(token)
				return nil
			}
		},
		must: []string{"fencing/33-guarded-write-exact"},
	},
}
