package conformance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

var faultsOfManners = []fault{
	{
		name: "a second release frees a successor",
		build: onGrant(func(w *wrap, _ *service, req backend.Request, g *wrapGrant) {
			var before atomic.Bool
			g.release = func(ctx context.Context) error {
				err := g.Grant.Release(ctx)
				if before.Swap(true) {
					w.free(ctx, req.Key)
				}
				return err
			}
		}),
		must: []string{"release/18-second-unlock", "release/19-retried", "ambiguity/34-release-reply-dropped"},
	},
	{
		name: "keeps a grant for no time if its TTL is long", // as a sum that overflows does
		build: func(w *wrap, _ *service) {
			w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				g, err := w.Backend.TryAcquire(ctx, req)
				if err == nil && req.TTL > 24*time.Hour {
					w.free(ctx, req.Key)
				}
				return g, err
			}
		},
		must: []string{"lease/25-extreme-durations"},
	},
	{
		name: "releases late",
		build: onGrant(func(_ *wrap, _ *service, _ backend.Request, g *wrapGrant) {
			var once sync.Once
			g.release = func(ctx context.Context) error {
				once.Do(func() {
					time.AfterFunc(30*time.Millisecond, func() { _ = g.Grant.Release(context.WithoutCancel(ctx)) })
				})
				return nil
			}
		}),
		must: []string{"exclusion/03-reacquire-after-release"},
		may: []string{"release/19-overlaps-renewal", "ambiguity/34-abandoned-together", "release/20-break-earlier-holder", "exclusion/02-names-the-holder", "lease/23-renewal-after-takeover", "exclusion/02-second-holder-refused", "release/18-second-unlock", "release/20-break-old-holder-learns", "fencing/31-constant-and-own",
			"lease/22-no-renewal-after-release", "lease/23-renewal-never-recreates", "names/36-prefix-isolates", "capabilities/00-list", "capabilities/00-inspect",
			"ambiguity/34-acquire-sent-twice", "ambiguity/34-abandon-reply-dropped", "release/19-after-takeover", "exclusion/01-keys-independent",
			"release/19-after-expiry", "waiting/12-fifo", "waiting/12-fifo-cancelled-waiters", "exclusion/04-parallel-acquirers",
			"cancellation/16-cancel-races-grant", "release/19-retried", "exclusion/07-history-linearizable",
			"loss/27-not-on-release", "lifecycle/37-close-releases", "lifecycle/37-use-after-close"},
	},
	{
		name: "lets in the client that holds already",
		build: func(w *wrap, s *service) {
			var mine sync.Map
			w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				g, err := w.Backend.TryAcquire(ctx, req)
				if info, _ := w.Backend.Inspect(ctx, req.Key); errors.Is(err, backend.ErrLocked) && info.Holder != nil {
					if held, ok := mine.Load(info.Holder.Owner); ok {
						return held.(backend.Grant), nil
					}
				}
				return g, err
			}
			w.grant = func(req backend.Request, g backend.Grant) backend.Grant {
				mine.Store(req.Owner, g)
				return g
			}
		},
		must: []string{"exclusion/02-second-holder-refused"},
		may: []string{"lease/23-renewal-after-takeover", "exclusion/07-history-linearizable", "waiting/12-try-does-not-overtake", "release/18-second-unlock", "release/19-after-takeover", "release/20-break-old-holder-learns",
			"ambiguity/34-acquire-reply-dropped"},
	},
	{
		name: "compares all but the end of an owner id",
		build: func(w *wrap, _ *service) {
			w.request = func(req *backend.Request) { req.Owner = req.Owner[:len(req.Owner)-1] + "x" }
		},
		must: []string{"exclusion/02-second-holder-refused", "release/18-not-the-owner"},
		may:  []string{"release/20-break-earlier-holder", "exclusion/02-names-the-holder", "capabilities/00-inspect", "capabilities/00-list", "waiting/09-granted-on-break"},
	},
	{
		name: "an acquire that is sent again is refused",
		build: func(w *wrap, _ *service) {
			w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				if info, err := w.Backend.Inspect(ctx, req.Key); err == nil && info.Holder != nil {
					return nil, &backend.LockedError{Holder: *info.Holder}
				}
				return w.Backend.TryAcquire(ctx, req)
			}
		},
		must: []string{"ambiguity/34-acquire-again-extends", "ambiguity/34-acquire-sent-twice"},
	},
	{
		name: "an acquire that is sent again gets another token",
		build: onGrant(func(_ *wrap, s *service, req backend.Request, g *wrapGrant) {
			token := s.tokens.next(req.Key, 1)
			g.token = func() uint64 { return token }
		}),
		must: []string{"ambiguity/34-acquire-sent-twice"},
		may:  []string{"exclusion/02-names-the-holder", "capabilities/00-inspect"},
	},
	{
		name:    "names collide by case",
		build:   onName(strings.ToLower),
		harness: keyOf(strings.ToLower),
		must:    []string{"names/36-nasty-names", "names/36-many-names"},
	},
	{
		name:    "names are trimmed",
		build:   onName(func(n string) string { return "k" + strings.TrimSpace(n) }),
		harness: keyOf(strings.TrimSpace),
		must:    []string{"names/36-nasty-names", "names/36-many-names"},
		may:     []string{"release/20-break-earlier-holder", "capabilities/00-list", "capabilities/00-inspect", "combinators/42-leader-seen", "names/36-prefix-isolates", "waiting/09-granted-on-break", "release/20-break-pushed", "release/20-break-old-holder-learns", "fencing/32-over-break"},
	},
	{
		name:  "the prefix is ignored",
		build: func(*wrap, *service) {},
		harness: func(h *conformance.Harness, _ *service) {
			open := h.Open
			h.OpenPrefix = func(ctx context.Context, _ string) (backend.Backend, error) { return open(ctx) }
		},
		must: []string{"names/36-prefix-isolates"},
		may:  []string{"names/36-nasty-names", "capabilities/00-list"},
	},
	{
		name: "a wait ignores its context",
		build: func(w *wrap, _ *service) {
			w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return w.Backend.Acquire(context.WithoutCancel(ctx), req)
			}
		},
		must: []string{"waiting/08-timed-wait", "cancellation/17-wait-limit", "cancellation/15-cancel-prompt", "cancellation/15-leaves-no-place", "cancellation/15-leaves-no-goroutine",
			"waiting/12-fifo-cancelled-waiters", "lifecycle/37-close-ends-waits", "combinators/41-all-or-nothing"},
		may: []string{"ambiguity/34-abandoned-together", "exclusion/07-history-linearizable", "cancellation/16-cancel-races-grant"},
	},
	{
		name: "an attempt under a dead context is executed",
		build: func(w *wrap, _ *service) {
			w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				g, err := w.Backend.TryAcquire(context.WithoutCancel(ctx), req)
				if err == nil && ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return g, err
			}
		},
		must: []string{"cancellation/14-dead-context"},
	},
	{
		name: "a cancelled wait leaves a goroutine",
		build: func(w *wrap, _ *service) {
			w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				g, err := w.Backend.Acquire(ctx, req)
				if err != nil {
					go func() { select {} }()
				}
				return g, err
			}
		},
		must: []string{"cancellation/15-leaves-no-goroutine"},
	},
	{
		name:  "closing leaves a goroutine",
		build: func(w *wrap, _ *service) { w.close = func() { go func() { select {} }() } },
		must:  []string{"lifecycle/37-close-leaves-no-goroutine"},
	},
	{
		name: "a break returns nil and does nothing",
		build: func(w *wrap, _ *service) {
			w.breaks = func(context.Context, string, string) (*backend.Holder, error) { return nil, nil }
		},
		must: []string{"waiting/09-granted-on-break", "release/20-break-old-holder-learns", "release/20-break-pushed", "release/20-break-earlier-holder", "fencing/32-over-break"},
	},
	{
		name: "a break removes whichever attempt holds the key",
		build: func(w *wrap, _ *service) {
			w.breaks = func(ctx context.Context, key, _ string) (*backend.Holder, error) {
				return w.Backend.Break(ctx, key, "")
			}
		},
		must: []string{"release/20-break-earlier-holder"},
	},
	{
		name:  "declares that it pushes a break and does not",
		build: func(w *wrap, _ *service) { w.request = func(req *backend.Request) { req.OnLost = nil } },
		must:  []string{"release/20-break-pushed"},
	},
	{
		name: "notifies of the first change only",
		build: func(w *wrap, _ *service) {
			n := 0
			w.watch = func(changed func()) {
				if n++; n <= 2 {
					changed()
				}
			}
		},
		must: []string{"capabilities/00-changes"},
	},
	{
		name: "reports a loss at a release",
		build: onGrant(func(_ *wrap, _ *service, req backend.Request, g *wrapGrant) {
			g.release = func(ctx context.Context) error {
				err := g.Grant.Release(ctx)
				if req.OnLost != nil {
					req.OnLost(backend.ErrLost)
				}
				return err
			}
		}),
		must: []string{"loss/27-not-on-release"},
	},
	{
		name: "capabilities change",
		build: func(w *wrap, _ *service) {
			var n atomic.Int64
			w.caps = func(c *backend.Capabilities) { c.MaxTTL = time.Hour + time.Duration(n.Add(1)%2) }
		},
		must: []string{"capabilities/00-consistent"},
	},
	{
		name: "inspect makes up ages",
		build: func(w *wrap, _ *service) {
			w.inspect = func(i *backend.Info) {
				if i.Holder != nil {
					i.Holder.Age = time.Hour
				}
			}
		},
		must: []string{"capabilities/00-inspect"},
	},
	{
		name:  "inspect hides who waits",
		build: func(w *wrap, _ *service) { w.inspect = func(i *backend.Info) { i.Waiters = nil } },
		must:  []string{"capabilities/00-inspect"},
	},
	{
		name: "a grant ends at the deadline of its request",
		build: func(w *wrap, _ *service) {
			w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				g, err := w.Backend.Acquire(ctx, req)
				if d, ok := ctx.Deadline(); ok && err == nil {
					time.AfterFunc(time.Until(d), func() { _ = g.Release(context.WithoutCancel(ctx)) })
				}
				return g, err
			}
		},
		must: []string{"cancellation/17-wait-limit"},
		may:  []string{"exclusion/07-history-linearizable"},
	},
	{
		name: "list does not stop",
		build: func(w *wrap, _ *service) {
			w.list = func(ctx context.Context, yield func(backend.Info) bool) error {
				return w.Backend.List(ctx, func(i backend.Info) bool { yield(i); return true })
			}
		},
		must: []string{"capabilities/00-list"},
	},
	{
		name: "a failed renewal is called a loss",
		build: onGrant(func(_ *wrap, _ *service, _ backend.Request, g *wrapGrant) {
			var n atomic.Int64
			g.renew = func(ctx context.Context, ttl time.Duration) error {
				if n.Add(1)%4 == 3 {
					return backend.ErrLost
				}
				return g.Grant.Renew(ctx, ttl)
			}
		}),
		must: []string{"lease/22-renewal-outlasts-ttl", "ambiguity/34-renew-reply-dropped"},
		may: []string{"fencing/31-constant-and-own", "lifecycle/38-hundreds-of-keys", "lease/23-renewal-recovers", "loss/28-renewals-fail", "cancellation/17-hold-outlives-context", "cancellation/17-wait-limit",
			"lease/22-no-renewal-after-release"},
	},
}
