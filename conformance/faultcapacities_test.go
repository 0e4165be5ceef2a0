package conformance_test

import (
	"context"
	"errors"
	"slices"

	"github.com/interlock-go/lock/backend"
)

// faultsOfCapacities are backends that are wrong where shares of several capacities, or of
// several kinds, meet.
var faultsOfCapacities = []fault{
	{
		name: "another capacity than that in use is refused",
		build: onConflict(func(req backend.Request, present backend.Share) bool {
			return req.Share.Capacity > 0 && present.Capacity > 0
		}),
		must: []string{"shared/45-another-capacity", "shared/45-another-capacity-waits"},
	},
	{
		name: "readers and permits refuse each other",
		build: onConflict(func(req backend.Request, present backend.Share) bool {
			return req.Share.Capacity == 0 || present.Capacity == 0
		}),
		must: []string{"shared/45-readers-and-permits", "shared/44-downgrade-before-permits"},
		may:  []string{"shared/43-tokens-rise", "shared/44-history-linearizable"},
	},
	{
		name: "permits are judged by the capacity of a holder",
		build: onPermits(func(w *wrap, req *backend.Request) {
			if held := w.held(req.Key); len(held) > 0 && held[0].Share.Capacity > 0 {
				req.Share.Capacity = held[0].Share.Capacity
				req.Share.Weight = min(req.Share.Weight, req.Share.Capacity)
			}
		}),
		must: []string{"shared/45-another-capacity", "shared/45-another-capacity-waits"},
	},
	{
		name: "permits of another capacity are not counted",
		build: onPermits(func(w *wrap, req *backend.Request) {
			if held := w.held(req.Key); len(held) > 0 && held[0].Share.Capacity > 0 && held[0].Share.Capacity != req.Share.Capacity {
				req.Key += "/another"
			}
		}),
		must: []string{"shared/45-another-capacity", "shared/45-another-capacity-waits"},
	},
	{
		name: "permits that fit overtake those of a lower capacity",
		build: func(w *wrap, _ *service) {
			w.shares = true
			w.request = func(req *backend.Request) {
				info, err := w.Backend.Inspect(context.Background(), req.Key)
				lower := func(c backend.Contender) bool { return 0 < c.Share.Capacity && c.Share.Capacity < req.Share.Capacity }
				if err == nil && slices.ContainsFunc(info.Waiters, lower) {
					req.Key += "/overtaken"
				}
			}
		},
		must: []string{"shared/45-another-capacity-waits"},
	},
	{
		name: "slots are counted up from the greatest that is taken",
		build: func(w *wrap, s *service) {
			onShareGrant(func(w *wrap, req backend.Request, g *shareFault) {
				own := g.Grant.(backend.SlotHolder).Slots()
				next := 0
				for _, h := range w.held(req.Key) {
					if h.Owner != req.Owner && len(h.Slots) > 0 {
						next = max(next, slices.Max(h.Slots)+1)
					}
				}
				for i := range own {
					own[i] = next + i
				}
				g.slots = func() []int { return own }
			})(w, s)
		},
		must: []string{"shared/45-another-capacity", "shared/45-slots"},
		may:  []string{"shared/45-another-capacity-waits", "shared/45-many-workers", "shared/46-broken"},
	},
	{
		name: "readers and permits do not exclude each other",
		build: onPermits(func(w *wrap, req *backend.Request) {
			if held := w.held(req.Key); len(held) > 0 && held[0].Share == backend.Reader {
				req.Key += "/permits"
			}
		}),
		must: []string{"shared/45-readers-and-permits", "shared/44-downgrade-before-permits"},
		may:  []string{"shared/44-history-linearizable", "shared/43-tokens-rise"},
	},
	{
		name: "a downgrade frees the key for permits that wait",
		build: onShareGrant(func(w *wrap, req backend.Request, g *shareFault) {
			g.downgrade = func(ctx context.Context) error {
				info, err := w.Backend.Inspect(ctx, req.Key)
				if err == nil && len(info.Waiters) > 0 && info.Waiters[0].Share.Capacity > 0 {
					return g.Grant.Release(ctx)
				}
				return errors.Join(err, g.Grant.(backend.Downgrader).Downgrade(ctx))
			}
		}),
		must: []string{"shared/44-downgrade-before-permits"},
	},
}

// held returns the holders of a key.
func (w *wrap) held(key string) (held []backend.Holder) {
	info, err := w.Backend.Inspect(context.Background(), key)
	if err != nil || info.Holder == nil {
		return nil
	}
	return append([]backend.Holder{*info.Holder}, info.Others...)
}

// onConflict refuses a shared request, and a downgrade, where a share of another capacity holds or
// waits and refuse says so.
func onConflict(refuse func(req backend.Request, present backend.Share) bool) func(*wrap, *service) {
	return func(w *wrap, s *service) {
		conflict := func(ctx context.Context, req backend.Request) error {
			info, err := w.Backend.Inspect(ctx, req.Key)
			if err != nil || req.Share.Exclusive() {
				return err
			}
			var present []backend.Share
			for _, h := range w.held(req.Key) {
				present = append(present, h.Share)
			}
			for _, c := range info.Waiters {
				present = append(present, c.Share)
			}
			for _, p := range present {
				if !p.Exclusive() && p.Capacity != req.Share.Capacity && refuse(req, p) {
					return backend.Invalid("capacity", req.Share.Capacity, p.String())
				}
			}
			return nil
		}
		onShareGrant(func(_ *wrap, req backend.Request, g *shareFault) {
			g.downgrade = func(ctx context.Context) error {
				reader := req
				reader.Share = backend.Reader
				if err := conflict(ctx, reader); err != nil {
					return err
				}
				return g.Grant.(backend.Downgrader).Downgrade(ctx)
			}
		})(w, s)
		w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
			if err := conflict(ctx, req); err != nil {
				return nil, err
			}
			return w.Backend.TryAcquire(ctx, req)
		}
		w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
			if err := conflict(ctx, req); err != nil {
				return nil, err
			}
			return w.Backend.Acquire(ctx, req)
		}
	}
}
