package conformance_test

import (
	"context"
	"errors"
	"fmt"
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
	{
		name: "keeps an ended grant for its whole TTL",
		build: func(w *wrap, _ *service) {
			w.grant = func(_ backend.Request, g backend.Grant) backend.Grant { return keepsLonger{g} }
		},
		must: []string{"release/18-min-hold-after-close"},
	},
	{
		name: "frees an ended grant within its minimum hold",
		build: func(w *wrap, _ *service) {
			w.grant = func(_ backend.Request, g backend.Grant) backend.Grant { return keepsNothing{g} }
		},
		must: []string{"release/18-min-hold-after-close"},
	},
	{
		name: "lists keys that it has once listed",
		build: func(w *wrap, _ *service) {
			var mu sync.Mutex
			seen := map[string]backend.Info{}
			w.list = func(ctx context.Context, yield func(backend.Info) bool) error {
				mu.Lock()
				defer mu.Unlock()
				err := w.Backend.List(ctx, func(i backend.Info) bool { seen[i.Name] = i; return true })
				for _, i := range seen {
					if !yield(i) {
						break
					}
				}
				return err
			}
		},
		must: []string{"capabilities/00-list-agrees"},
		may:  []string{"capabilities/00-list"},
	},
	{
		name: "an error of a connection is that of a canceled context",
		build: func(w *wrap, _ *service) {
			w.fails = func(_ context.Context, err error) error { return fmt.Errorf("%w: %w", err, context.Canceled) }
		},
		harness: overWire,
		must:    []string{"cancellation/15-own-limits"},
	},
}

// keepsLonger is a grant that Keep does not shorten.
type keepsLonger struct{ backend.Grant }

func (g keepsLonger) Unwrap() backend.Grant { return g.Grant }

func (g keepsLonger) Keep(ctx context.Context, d time.Duration) error { return g.Renew(ctx, d) }

// keepsNothing is a grant that Keep releases.
type keepsNothing struct{ backend.Grant }

func (g keepsNothing) Unwrap() backend.Grant { return g.Grant }

func (g keepsNothing) Keep(ctx context.Context, _ time.Duration) error { return g.Release(ctx) }
