package conformance_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// faultsOfShares are backends that grant shares wrongly. All others grant none.
var faultsOfShares = []fault{
	{
		name:  "readers exclude each other",
		build: onShare(func(_ *wrap, req *backend.Request) { req.Share = backend.Share{} }, backend.Reader),
		must:  []string{"shared/43-readers-share", "shared/43-fifo", "shared/43-tokens-rise", "shared/46-broken"},
		may: []string{"shared/43-cancelled-writer", "shared/44-downgrade", "shared/44-downgrade-reply-dropped",
			"shared/44-downgrade-refused-later", "shared/44-downgrade-late", "shared/45-readers-and-permits", "shared/46-renewed",
			"shared/47-cancel-races-grant", "shared/46-expiry", "shared/43-many-readers"},
	},
	{
		name:  "readers and writers do not exclude each other",
		build: onShare(func(_ *wrap, req *backend.Request) { req.Key += "/readers" }, backend.Reader),
		must:  []string{"shared/43-readers-share", "shared/43-fifo", "shared/43-cancelled-writer", "shared/44-downgrade", "shared/44-history-linearizable", "shared/46-expiry", "shared/46-renewed"},
		may: []string{"shared/44-downgrade-reply-dropped",
			"shared/44-downgrade-refused-later", "shared/44-downgrade-late", "shared/45-readers-and-permits", "shared/43-tokens-rise", "shared/46-broken", "shared/47-cancel-races-grant",
			"shared/47-reply-dropped", "shared/43-many-readers"},
	},
	{
		name: "a reader overtakes a writer that waits",
		build: func(w *wrap, _ *service) {
			w.shares = true
			overtake := func(req *backend.Request) {
				info, err := w.Backend.Inspect(context.Background(), req.Key)
				if err == nil && req.Share == backend.Reader && info.Holder != nil && info.Holder.Share == backend.Reader && len(info.Waiters) > 0 {
					req.Key += "/overtaken"
				}
			}
			w.request = overtake
		},
		must: []string{"shared/43-fifo"},
		may:  []string{"shared/44-history-linearizable", "shared/43-cancelled-writer", "shared/47-cancel-races-grant", "shared/46-renewed", "shared/44-downgrade"},
	},
	{
		name: "a small request overtakes a large one",
		build: func(w *wrap, _ *service) {
			w.shares = true
			w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				g, err := w.Backend.TryAcquire(ctx, req)
				if info, _ := w.Backend.Inspect(ctx, req.Key); errors.Is(err, backend.ErrLocked) && req.Share.Capacity > 0 {
					held := 0
					for _, h := range append(info.Others, *info.Holder) {
						held += h.Share.Weight
					}
					if held > 0 && held+req.Share.Weight <= req.Share.Capacity {
						req.Key += "/overtaken"
						return w.Backend.TryAcquire(ctx, req)
					}
				}
				return g, err
			}
		},
		must: []string{"shared/45-large-request"},
		may:  []string{"shared/44-history-linearizable", "shared/44-inspect"},
	},
	{
		name:  "one permit too many is granted",
		build: onPermits(func(_ *wrap, req *backend.Request) { req.Share.Capacity++ }),
		must:  []string{"shared/45-permits", "shared/45-many-workers", "shared/46-expiry", "shared/47-sent-twice", "shared/44-history-linearizable"},
		may: []string{"shared/45-large-request", "shared/45-another-capacity", "shared/44-inspect", "shared/45-slots", "shared/46-broken", "shared/47-abandoned",
			"shared/45-readers-and-permits", "shared/43-tokens-rise"},
	},
	{
		name:  "weights are not counted",
		build: onPermits(func(_ *wrap, req *backend.Request) { req.Share.Weight = 1 }),
		must:  []string{"shared/45-permits", "shared/45-many-workers", "shared/45-large-request", "shared/45-slots", "shared/44-inspect", "shared/44-history-linearizable"},
		may:   []string{"shared/45-another-capacity", "shared/46-broken", "shared/47-abandoned"},
	},
	{
		name: "two holders have the same slots",
		build: onShareGrant(func(_ *wrap, req backend.Request, g *shareFault) {
			g.slots = func() (slots []int) {
				for i := range req.Share.Weight {
					slots = append(slots, i)
				}
				return slots
			}
		}),
		must: []string{"shared/45-slots", "shared/45-many-workers", "shared/45-another-capacity"},
		may:  []string{"shared/45-another-capacity-waits"},
	},
	{
		name: "one release frees all shares",
		build: onShareGrant(func(w *wrap, req backend.Request, g *shareFault) {
			g.release = func(ctx context.Context) error {
				err := g.Grant.Release(ctx)
				_, _ = w.Backend.Break(ctx, req.Key, "")
				return err
			}
		}),
		must: []string{"shared/43-readers-share", "shared/43-fifo", "shared/45-permits", "shared/46-renewed"},
		may: []string{"shared/44-downgrade", "shared/43-cancelled-writer", "shared/44-downgrade-reply-dropped",
			"shared/44-downgrade-refused-later", "shared/44-downgrade-late", "shared/45-large-request", "shared/45-another-capacity",
			"shared/44-history-linearizable", "shared/45-many-workers", "shared/45-slots", "shared/46-expiry", "shared/44-inspect", "shared/47-abandoned", "shared/47-sent-twice",
			"shared/43-tokens-rise", "shared/46-broken", "shared/45-readers-and-permits", "shared/47-cancel-races-grant",
			"shared/43-many-readers"},
	},
	{
		name: "Break of one holder ends all",
		build: func(w *wrap, _ *service) {
			w.shares = true
			w.breaks = func(ctx context.Context, key, owner string) (*backend.Holder, error) {
				h, err := w.Backend.Break(ctx, key, owner)
				if h != nil && owner != "" {
					_, err = w.Backend.Break(ctx, key, "")
				}
				return h, err
			}
		},
		must: []string{"shared/46-broken"},
	},
	{
		name: "a downgrade does nothing",
		build: onShareGrant(func(_ *wrap, _ backend.Request, g *shareFault) {
			g.downgrade = func(context.Context) error { return nil }
		}),
		must: []string{"shared/44-downgrade", "shared/44-downgrade-reply-dropped",
			"shared/44-downgrade-refused-later", "shared/44-downgrade-late"},
	},
	{
		name: "a downgrade that is sent again is refused",
		build: onShareGrant(func(_ *wrap, _ backend.Request, g *shareFault) {
			sent := false
			g.downgrade = func(ctx context.Context) error {
				if sent {
					return backend.ErrLost
				}
				sent = true
				return g.Grant.(backend.Downgrader).Downgrade(ctx)
			}
		}),
		must: []string{"shared/44-downgrade-reply-dropped",
			"shared/44-downgrade-refused-later", "shared/44-downgrade-late"},
	},
	{
		name: "a downgrade that comes after the release acquires the key",
		build: onShareGrant(func(w *wrap, req backend.Request, g *shareFault) {
			g.downgrade = func(ctx context.Context) error {
				time.Sleep(time.Millisecond) // a slow request
				err := g.Grant.(backend.Downgrader).Downgrade(ctx)
				if errors.Is(err, backend.ErrLost) {
					req.Share = backend.Reader
					_, err = w.Backend.TryAcquire(ctx, req)
				}
				return err
			}
		}),
		must: []string{"shared/44-downgrade-races-unlock"},
	},
	{
		name: "the tokens of readers are all the same",
		build: onShareGrant(func(_ *wrap, req backend.Request, g *shareFault) {
			if req.Share == backend.Reader {
				g.token = func() uint64 { return 1 }
			}
		}),
		must: []string{"shared/43-tokens-rise", "shared/44-history-linearizable"},
	},
	{
		name:  "a share does not expire",
		build: onShare(func(_ *wrap, req *backend.Request) { req.TTL = time.Hour }, backend.Reader, backend.Share{Weight: 1, Capacity: 2}),
		must:  []string{"shared/46-expiry"},
	},
	{
		name: "a renewal of a share is not executed",
		build: onShareGrant(func(_ *wrap, _ backend.Request, g *shareFault) {
			until := g.Grant.Until()
			g.renew = func(_ context.Context, ttl time.Duration) error {
				until = time.Now().Add(ttl)
				return nil
			}
			g.until = func() time.Time { return until }
		}),
		must: []string{"shared/46-renewed"},
		may:  []string{"shared/46-expiry", "shared/46-broken"},
	},
	{
		name: "a share that is abandoned stays",
		build: func(w *wrap, _ *service) {
			w.shares = true
			w.abandon = func(ctx context.Context, req backend.Request) error {
				if req.Share.Exclusive() {
					return w.Backend.Abandon(ctx, req)
				}
				return nil
			}
		},
		must: []string{"shared/47-reply-dropped", "shared/47-abandoned"},
	},
	{
		name: "a request for a share that is sent twice is granted twice",
		build: onPermits(func(_ *wrap, req *backend.Request) {
			var id [16]byte
			_, _ = rand.Read(id[:])
			req.Owner = hex.EncodeToString(id[:])
		}),
		must: []string{"shared/47-sent-twice", "shared/47-reply-dropped", "shared/47-abandoned"},
		may:  []string{"shared/44-inspect", "shared/46-broken"},
	},
	{
		name: "a share that was cancelled is granted and kept",
		build: func(w *wrap, _ *service) {
			w.shares = true
			w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				if req.Share.Exclusive() {
					return w.Backend.Acquire(ctx, req)
				}
				type result struct {
					g   backend.Grant
					err error
				}
				got := make(chan result, 1)
				go func() {
					bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
					defer cancel()
					g, err := w.Backend.Acquire(bounded, req)
					got <- result{g, err}
				}()
				select {
				case r := <-got:
					return r.g, r.err
				case <-ctx.Done():
					return nil, backend.NotExecuted(ctx.Err())
				}
			}
		},
		must: []string{"shared/47-cancel-races-grant"},
		may:  []string{"shared/44-history-linearizable"},
	},
	{
		name: "a client renews a hundred shares and no more",
		build: func(w *wrap, s *service) {
			var granted atomic.Int64
			onShareGrant(func(_ *wrap, _ backend.Request, g *shareFault) {
				if granted.Add(1) > 100 {
					g.renew = func(context.Context, time.Duration) error { return backend.ErrLost }
				}
			})(w, s)
		},
		must: []string{"shared/43-many-readers"},
		may:  []string{"shared/44-history-linearizable"},
	},
	{
		name: "Inspect shows one holder of several",
		build: func(w *wrap, _ *service) {
			w.shares = true
			w.inspect = func(info *backend.Info) { info.Others = nil }
		},
		must: []string{"shared/44-inspect"},
	},
	{
		name: "a dead waiter that does not fit beside shares keeps its place",
		build: besideShares(func(w *wrap, s *service) func(context.Context, backend.Request) (backend.Grant, error) {
			return s.space.Backend().Acquire // which the end of the client does not close
		}),
		harness: deadProcess,
		must:    []string{"shared/48-dead-waiter"},
	},
	{
		name: "a waiter that does not fit beside shares loses its place",
		build: besideShares(func(w *wrap, s *service) func(context.Context, backend.Request) (backend.Grant, error) {
			return func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				for {
					turn, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					g, err := w.Backend.Acquire(turn, req)
					cancel()
					if err == nil || ctx.Err() != nil {
						return g, err
					}
				}
			}
		}),
		harness: deadProcess,
		must:    []string{"shared/48-waiter-alive"},
		may:     []string{"shared/43-fifo", "shared/44-history-linearizable", "shared/45-large-request"},
	},
}

func deadProcess(h *conformance.Harness, _ *service) { h.Budget.DeadProcess = 100 * time.Millisecond }

// besideShares changes the waits for a key that shares hold.
func besideShares(wait func(w *wrap, s *service) func(context.Context, backend.Request) (backend.Grant, error)) func(*wrap, *service) {
	return func(w *wrap, s *service) {
		w.shares = true
		special := wait(w, s)
		w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
			if info, err := w.Backend.Inspect(ctx, req.Key); err == nil && info.Holder != nil && !info.Holder.Share.Exclusive() {
				return special(ctx, req)
			}
			return w.Backend.Acquire(ctx, req)
		}
	}
}

// onShare changes the requests for some shares.
func onShare(change func(w *wrap, req *backend.Request), shares ...backend.Share) func(*wrap, *service) {
	return func(w *wrap, _ *service) {
		w.shares = true
		w.request = func(req *backend.Request) {
			for _, s := range shares {
				if req.Share == s {
					change(w, req)
					return
				}
			}
		}
	}
}

// onPermits changes the requests for permits.
func onPermits(change func(w *wrap, req *backend.Request)) func(*wrap, *service) {
	return func(w *wrap, _ *service) {
		w.shares = true
		w.request = func(req *backend.Request) {
			if req.Share.Capacity > 0 {
				change(w, req)
			}
		}
	}
}

// onShareGrant changes grants: those of shares, and the downgrade of all.
func onShareGrant(f func(w *wrap, req backend.Request, g *shareFault)) func(*wrap, *service) {
	return func(w *wrap, _ *service) {
		w.shares = true
		w.grant = func(req backend.Request, g backend.Grant) backend.Grant {
			sf := &shareFault{wrapGrant: wrapGrant{Grant: g}}
			f(w, req, sf)
			if req.Share.Exclusive() {
				sf.wrapGrant, sf.slots = wrapGrant{Grant: g}, nil
			}
			return sf
		}
	}
}

// shareFault is a grant of a share whose behaviour can be changed piece by piece.
type shareFault struct {
	wrapGrant
	slots     func() []int
	downgrade func(ctx context.Context) error
}

func (g *shareFault) Slots() []int {
	if g.slots != nil {
		return g.slots()
	}
	return g.Grant.(backend.SlotHolder).Slots()
}

func (g *shareFault) Downgrade(ctx context.Context) error {
	if g.downgrade != nil {
		return g.downgrade(ctx)
	}
	return g.Grant.(backend.Downgrader).Downgrade(ctx)
}
