package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// onErrors is a build function for a client that misunderstands failed requests.
func onErrors(f func(ctx context.Context, err error) error) func(*wrap, *service) {
	return func(w *wrap, _ *service) {
		w.fails = f
		w.grant = func(_ backend.Request, g backend.Grant) backend.Grant {
			of := func(ctx context.Context, err error) error {
				if err == nil {
					return nil
				}
				return f(ctx, err)
			}
			return &wrapGrant{
				Grant:   g,
				renew:   func(ctx context.Context, ttl time.Duration) error { return of(ctx, g.Renew(ctx, ttl)) },
				release: func(ctx context.Context) error { return of(ctx, g.Release(ctx)) },
			}
		}
	}
}

// comparesFirst reads the holder, compares the owner, and only then does what it was asked to do to the key,
// whichever grant holds it by then.
func comparesFirst(w *wrap, ctx context.Context, req backend.Request, gap time.Duration, do func() error) error {
	info, err := exchange(ctx, w.wire, func() (backend.Info, error) { return w.Backend.Inspect(ctx, req.Key) })
	switch {
	case err != nil:
		return err
	case info.Holder == nil || info.Holder.Owner != req.Owner:
		return backend.ErrLost
	}
	time.Sleep(gap)
	_, err = exchange(ctx, w.wire, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// releasesInTwoSteps is a build function for a release that compares first.
func releasesInTwoSteps(gap time.Duration) func(*wrap, *service) {
	return onGrant(func(w *wrap, _ *service, req backend.Request, g *wrapGrant) {
		g.release = func(ctx context.Context) error {
			return comparesFirst(w, ctx, req, gap, func() error { w.free(ctx, req.Key); return nil })
		}
	})
}

// renewsInTwoSteps is a build function for a renewal that compares first, and then writes the key as its own.
func renewsInTwoSteps(gap time.Duration) func(*wrap, *service) {
	return onGrant(func(w *wrap, _ *service, req backend.Request, g *wrapGrant) {
		g.renew = func(ctx context.Context, ttl time.Duration) error {
			return comparesFirst(w, ctx, req, gap, func() error {
				if err := g.Grant.Renew(ctx, ttl); !errors.Is(err, backend.ErrLost) {
					return err
				}
				w.free(ctx, req.Key)
				req.TTL = ttl
				_, err := w.Backend.TryAcquire(ctx, req)
				return err
			})
		}
	})
}

// faultsOfStrangers are what authors of drivers got wrong, or could have.
var faultsOfStrangers = []fault{
	{
		name:    "none, over a wire",
		build:   onGrant(func(*wrap, *service, backend.Request, *wrapGrant) {}),
		harness: overWire,
	},
	{
		name:    "none, without optional interfaces and over a wire",
		build:   onGrant(func(*wrap, *service, backend.Request, *wrapGrant) {}),
		plain:   true,
		harness: overWire,
	},
	{
		name: "ignores the owner on renewal, without Break",
		build: onGrant(func(w *wrap, _ *service, req backend.Request, g *wrapGrant) {
			g.renew = func(ctx context.Context, ttl time.Duration) error {
				err := g.Grant.Renew(ctx, ttl)
				if info, _ := w.Backend.Inspect(ctx, req.Key); errors.Is(err, backend.ErrLost) && info.Holder != nil {
					err = nil
				}
				return err
			}
		}),
		plain: true,
		must:  []string{"lease/23-renewal-after-takeover"},
		may:   []string{"lease/23-renewal-races-expiry"},
	},
	{
		name: "counts Until from the reply",
		build: func(w *wrap, _ *service) {
			w.grant = func(req backend.Request, g backend.Grant) backend.Grant {
				until := time.Now().Add(req.TTL)
				return &wrapGrant{
					Grant: g,
					until: func() time.Time { return until },
					renew: func(ctx context.Context, ttl time.Duration) error {
						err := g.Renew(ctx, ttl)
						if err == nil {
							until = time.Now().Add(ttl)
						}
						return err
					},
				}
			}
		},
		plain:   true,
		harness: overWire,
		must:    []string{"loss/28-slow-replies"},
	},
	{
		name: "counts Until of a renewal from the reply",
		build: func(w *wrap, _ *service) {
			w.grant = func(_ backend.Request, g backend.Grant) backend.Grant {
				wg := &wrapGrant{Grant: g}
				wg.renew = func(ctx context.Context, ttl time.Duration) error {
					err := g.Renew(ctx, ttl)
					if err == nil {
						until := time.Now().Add(ttl)
						wg.until = func() time.Time { return until }
					}
					return err
				}
				return wg
			}
		},
		plain:   true,
		harness: overWire,
		must:    []string{"loss/28-slow-replies"},
	},
	{
		name:  "sends its next request over another connection as old as the one that had no answer",
		build: func(w *wrap, _ *service) { w.wire.keepDead() },
		plain: true, harness: overWire,
		must: []string{"loss/28-stale-connections"},
	},
	{
		name:    "every failed request is called not executed",
		build:   onErrors(func(_ context.Context, err error) error { return certain{err} }),
		plain:   true,
		harness: overWire,
		must:    []string{"ambiguity/34-link-unknown-outcome", "ambiguity/34-link-silent-at-each-step"},
		may:     []string{"ambiguity/34-link-acquire", "ambiguity/34-link-release"},
	},
	{
		name: "a write that was not answered, after a read that was, is called not executed",
		build: func(w *wrap, _ *service) {
			w.fails = func(_ context.Context, err error) error { return certain{err} }
			w.reads = true
		},
		plain:   true,
		harness: overWire,
		must:    []string{"ambiguity/34-link-silent-at-each-step"},
		may:     []string{"ambiguity/34-link-acquire", "ambiguity/34-link-release"},
	},
	{
		name: "drops the error of the context",
		build: onErrors(func(ctx context.Context, err error) error {
			if ctx.Err() != nil {
				return backend.Uncertain(errors.New("i/o timeout"))
			}
			return err
		}),
		plain:   true,
		harness: overWire,
		must:    []string{"cancellation/15-link-context-error", "cancellation/14-dead-context"},
	},
	{
		name: "drops the error of a context that ends meanwhile",
		build: onErrors(func(ctx context.Context, err error) error {
			if ctx.Err() != nil && errors.Is(err, backend.ErrUncertain) {
				return backend.Uncertain(errors.New("i/o timeout"))
			}
			return err
		}),
		plain:   true,
		harness: overWire,
		must:    []string{"cancellation/15-link-context-error"},
	},
	{
		name:  "compares the owner 20ms before it releases",
		build: releasesInTwoSteps(20 * time.Millisecond),
		plain: true,
		must:  []string{"release/19-races-expiry"},
	},
	{
		name:    "compares the owner in an exchange before the release",
		build:   releasesInTwoSteps(0),
		plain:   true,
		harness: overWire,
		must:    []string{"release/19-races-expiry"},
	},
	{
		name:  "compares the owner 20ms before it renews",
		build: renewsInTwoSteps(20 * time.Millisecond),
		plain: true,
		must:  []string{"lease/23-renewal-races-expiry", "release/19-overlaps-renewal"},
	},
	{
		name:    "compares the owner in an exchange before the renewal",
		build:   renewsInTwoSteps(0),
		plain:   true,
		harness: overWire,
		must:    []string{"lease/23-renewal-races-expiry"},
		may:     []string{"release/19-overlaps-renewal"},
	},
	{
		name: "a repeated request does not extend",
		build: func(w *wrap, _ *service) {
			w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				info, err := w.Backend.Inspect(ctx, req.Key)
				if err != nil || info.Holder == nil || info.Holder.Owner != req.Owner {
					return w.Backend.TryAcquire(ctx, req)
				}
				again := req
				again.TTL = time.Nanosecond // which extends nothing
				g, err := w.Backend.TryAcquire(ctx, again)
				if err != nil {
					return nil, err
				}
				until := time.Now().Add(req.TTL)
				return &wrapGrant{Grant: g, until: func() time.Time { return until }}, nil
			}
		},
		plain: true,
		must:  []string{"ambiguity/34-acquire-again-extends"},
	},
	{
		name:  "drops the metadata",
		build: func(w *wrap, _ *service) { w.request = func(req *backend.Request) { req.Metadata = "" } },
		plain: true,
		must:  []string{"exclusion/02-names-the-holder"},
	},
	{
		name: "names a wrong token of the holder",
		build: func(w *wrap, _ *service) {
			w.fails = func(_ context.Context, err error) error {
				var l *backend.LockedError
				if errors.As(err, &l) {
					l.Holder.Token++
				}
				return err
			}
		},
		plain: true,
		must:  []string{"exclusion/02-names-the-holder"},
	},
	{
		name: "keeps each grant for a second at least",
		build: func(w *wrap, _ *service) {
			w.caps = func(c *backend.Capabilities) { c.MinTTL = time.Nanosecond }
			w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				longer := req
				longer.TTL = max(req.TTL, time.Second)
				g, err := w.Backend.TryAcquire(ctx, longer)
				if err != nil {
					return nil, err
				}
				until := time.Now().Add(req.TTL)
				wg := &wrapGrant{Grant: g, until: func() time.Time { return until }}
				wg.renew = func(ctx context.Context, ttl time.Duration) error {
					sent := time.Now()
					err := g.Renew(ctx, max(ttl, time.Second))
					if err == nil {
						until = sent.Add(ttl)
					}
					return err
				}
				return wg, nil
			}
		},
		plain: true,
		must:  []string{"lease/25-least-ttl"},
	},
	{
		name: "claims tokens that survive a failover, and forgets them in one",
		build: func(w *wrap, s *service) {
			w.caps = func(c *backend.Capabilities) { c.Fencing = backend.FencingFailover }
			onGrant(func(_ *wrap, s *service, req backend.Request, g *wrapGrant) {
				token := s.tokens.next(req.Key, 1)
				g.token = func() uint64 { return token }
			})(w, s)
		},
		harness: func(h *conformance.Harness, s *service) {
			h.Failover = func(context.Context) error {
				s.tokens.mu.Lock()
				defer s.tokens.mu.Unlock()
				s.tokens.last = nil
				return nil
			}
		},
		must: []string{"fencing/32-over-failover"},
		may:  []string{"exclusion/02-names-the-holder", "ambiguity/34-acquire-sent-twice", "capabilities/00-inspect"},
	},
}

// certain is an error that is marked by NotExecuted, whatever it was marked by before.
type certain struct{ cause error }

func (c certain) Error() string { return c.cause.Error() }

func (c certain) Is(target error) bool {
	return target != backend.ErrUncertain && errors.Is(c.cause, target)
}

func (c certain) As(target any) bool {
	return errors.As(backend.NotExecuted(errors.New("marked")), target) || errors.As(c.cause, target)
}
