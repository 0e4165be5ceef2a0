package conformance_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// tokens replaces memlock's tokens by the service's own.
type tokens struct {
	mu   sync.Mutex
	last map[string]uint64
}

func (ts *tokens) next(key string, step uint64) uint64 {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.last == nil {
		ts.last = map[string]uint64{}
	}
	ts.last[key] += step
	return ts.last[key]
}

// onGrant is a build function that changes grants only.
func onGrant(f func(w *wrap, s *service, req backend.Request, g *wrapGrant)) func(*wrap, *service) {
	return func(w *wrap, s *service) {
		w.grant = func(req backend.Request, g backend.Grant) backend.Grant {
			wg := &wrapGrant{Grant: g}
			f(w, s, req, wg)
			return wg
		}
	}
}

// onQueue is a build function for a queue of its own.
func onQueue(set func(q *queue), caps func(*backend.Capabilities)) func(*wrap, *service) {
	var once sync.Once
	return func(w *wrap, s *service) {
		once.Do(func() {
			s.queue.poll = time.Millisecond
			set(&s.queue)
		})
		s.queue.attach(w)
		w.caps = caps
	}
}

// phantom is a grant that the service knows nothing of.
type phantom struct{ token uint64 }

func (p phantom) Token() uint64                              { return p.token }
func (p phantom) Until() time.Time                           { return time.Now().Add(time.Minute) }
func (p phantom) Renew(context.Context, time.Duration) error { return nil }
func (p phantom) Release(context.Context) error              { return nil }

var faultsOfHolds = []fault{
	{
		name: "none",
		build: func(w *wrap, s *service) {
			onGrant(func(*wrap, *service, backend.Request, *wrapGrant) {})(w, s)
		},
	},
	{
		name:  "none, with a queue of its own",
		build: onQueue(func(*queue) {}, nil),
	},
	{
		// looks whether the key is free, and takes it whatever has happened since
		name: "lets two in",
		build: func(w *wrap, s *service) {
			look := func(inner func(context.Context, backend.Request) (backend.Grant, error)) func(context.Context, backend.Request) (backend.Grant, error) {
				return func(ctx context.Context, req backend.Request) (backend.Grant, error) {
					info, _ := w.Backend.Inspect(ctx, req.Key)
					if info.Holder != nil || ctx.Err() != nil {
						return inner(ctx, req)
					}
					time.Sleep(time.Millisecond)
					g, err := w.Backend.TryAcquire(ctx, req)
					if errors.Is(err, backend.ErrLocked) {
						g, err = phantom{}, nil
					}
					return g, err
				}
			}
			w.try, w.acquire = look(w.Backend.TryAcquire), look(w.Backend.Acquire)
			onGrant(func(_ *wrap, s *service, req backend.Request, g *wrapGrant) {
				token := s.tokens.next(req.Key, 1)
				g.token = func() uint64 { return token }
			})(w, s)
			w.inspect = nil
		},
		must: []string{"exclusion/04-parallel-acquirers", "exclusion/05-stock", "exclusion/07-history-linearizable"},
		may: []string{"combinators/41-all-opposite-order", // only if two of few turns begin in the same millisecond
			"exclusion/02-names-the-holder", "combinators/42-election-resign", "exclusion/05-counter", "capabilities/00-inspect", "ambiguity/34-acquire-sent-twice", "cancellation/16-cancel-races-grant"},
	},
	{
		name: "frees another's lock on release",
		build: onGrant(func(w *wrap, _ *service, req backend.Request, g *wrapGrant) {
			g.release = func(ctx context.Context) error {
				err := g.Grant.Release(ctx)
				if errors.Is(err, backend.ErrLost) {
					w.free(ctx, req.Key)
				}
				return err
			}
		}),
		must: []string{"release/18-second-unlock", "release/19-after-takeover", "release/19-retried", "release/20-break-old-holder-learns",
			"ambiguity/34-acquire-sent-twice", "ambiguity/34-abandon-reply-dropped", "ambiguity/34-release-reply-dropped"},
		may: []string{"release/19-races-expiry"},
	},
	{
		name: "frees the key of another owner on abandon",
		build: func(w *wrap, _ *service) {
			w.abandon = func(ctx context.Context, req backend.Request) error {
				err := w.Backend.Abandon(ctx, req)
				w.free(ctx, req.Key)
				return err
			}
		},
		must: []string{"release/18-not-the-owner", "ambiguity/34-abandon-reply-dropped", "ambiguity/34-abandoned-together"},
		may:  []string{"release/19-races-expiry", "ambiguity/34-hand-off-reply-dropped", "waiting/08-timed-wait"},
	},
	{
		name: "ignores the owner on renewal",
		build: onGrant(func(w *wrap, _ *service, req backend.Request, g *wrapGrant) {
			g.renew = func(ctx context.Context, ttl time.Duration) error {
				err := g.Grant.Renew(ctx, ttl)
				if info, _ := w.Backend.Inspect(ctx, req.Key); errors.Is(err, backend.ErrLost) && info.Holder != nil {
					err = nil
				}
				return err
			}
		}),
		must: []string{"lease/23-renewal-after-takeover", "release/20-break-old-holder-learns"},
		may:  []string{"lease/23-renewal-races-expiry"},
	},
	{
		name: "renewal takes a key that is free",
		build: onGrant(func(w *wrap, _ *service, req backend.Request, g *wrapGrant) {
			g.renew = func(ctx context.Context, ttl time.Duration) error {
				err := g.Grant.Renew(ctx, ttl)
				if errors.Is(err, backend.ErrLost) {
					if again, terr := w.Backend.TryAcquire(ctx, req); terr == nil {
						g.Grant, err = again, nil
					}
				}
				return err
			}
		}),
		must: []string{"lease/23-renewal-never-recreates", "lease/21-abandoned-holder"},
		may:  []string{"release/20-break-earlier-holder"},
	},
	{
		name: "a renewal shortens",
		build: onGrant(func(_ *wrap, _ *service, _ backend.Request, g *wrapGrant) {
			inner := g.Grant
			var end *time.Timer
			g.renew = func(ctx context.Context, ttl time.Duration) error {
				err := inner.Renew(ctx, ttl)
				if err == nil && end == nil {
					end = time.AfterFunc(ttl, func() { _ = inner.Release(context.Background()) })
				} else if err == nil {
					end.Reset(ttl)
				}
				return err
			}
			g.release = func(ctx context.Context) error {
				if end != nil {
					end.Stop()
				}
				return inner.Release(ctx)
			}
		}),
		must: []string{"lease/23-renewal-never-shortens"},
	},
	{
		name: "repeats a token",
		build: onGrant(func(_ *wrap, s *service, req backend.Request, g *wrapGrant) {
			n := s.tokens.next(req.Key, 1)
			g.token = func() uint64 { return (n + 1) / 2 }
		}),
		must: []string{"exclusion/07-history-linearizable", "fencing/31-constant-and-own", "fencing/32-over-release", "fencing/32-over-expiry",
			"fencing/32-over-break"},
		may: []string{"release/20-break-earlier-holder", "exclusion/02-names-the-holder", "capabilities/00-inspect", "ambiguity/34-acquire-sent-twice"},
	},
	{
		name: "a former holder reads its successor's token",
		build: onGrant(func(_ *wrap, s *service, req backend.Request, g *wrapGrant) {
			s.tokens.next(req.Key, 1)
			g.token = func() uint64 { return s.tokens.next(req.Key, 0) }
		}),
		must: []string{"fencing/31-constant-and-own", "loss/30-lost-lease-answers"},
		may:  []string{"exclusion/02-names-the-holder", "capabilities/00-inspect"},
	},
	{
		name: "tokens fall after a break",
		build: func(w *wrap, s *service) {
			onGrant(func(_ *wrap, s *service, req backend.Request, g *wrapGrant) {
				token := s.tokens.next(req.Key, 2)
				g.token = func() uint64 { return token }
			})(w, s)
			w.breaks = func(ctx context.Context, key, owner string) (*backend.Holder, error) {
				s.tokens.mu.Lock()
				if s.tokens.last[key] > 0 {
					s.tokens.last[key]--
				}
				s.tokens.last[key] /= 2
				s.tokens.mu.Unlock()
				return w.Backend.Break(ctx, key, owner)
			}
		},
		must: []string{"fencing/32-over-break"},
		may:  []string{"release/20-break-earlier-holder", "exclusion/02-names-the-holder", "capabilities/00-inspect", "ambiguity/34-acquire-sent-twice"},
	},
	{
		name:  "loses a wake-up",
		build: losesWakeUps,
		must:  []string{"waiting/10-no-lost-wakeup"},
		may: []string{"exclusion/04-parallel-acquirers", "exclusion/05-counter", "exclusion/05-stock", "exclusion/07-history-linearizable",
			"cancellation/16-cancel-races-grant", "waiting/12-try-does-not-overtake"},
	},
	{
		name: "counts Until from the receipt of a pushed grant",
		build: func(w *wrap, s *service) {
			w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
				waited, onWait := false, req.OnWait
				req.OnWait = func(l *backend.LockedError) { waited = true; onWait(l) }
				g, err := w.Backend.Acquire(ctx, req)
				if err == nil && waited && req.TTL == 2*time.Second {
					time.Sleep(250 * time.Millisecond) // on its way
				}
				return g, err
			}
			onGrant(func(_ *wrap, _ *service, req backend.Request, g *wrapGrant) {
				until := time.Now().Add(req.TTL)
				g.until = func() time.Time { return until }
				g.renew = func(ctx context.Context, ttl time.Duration) error {
					before := time.Now()
					err := g.Grant.Renew(ctx, ttl)
					if err == nil {
						until = before.Add(ttl)
					}
					return err
				}
			})(w, s)
		},
		must: []string{"loss/28-renewals-fail-after-wait"},
	},
	{
		name: "says that a grant lasts longer than it does",
		build: onGrant(func(_ *wrap, _ *service, _ backend.Request, g *wrapGrant) {
			g.until = func() time.Time { return g.Grant.Until().Add(time.Second) }
		}),
		must: []string{"ambiguity/34-acquire-again-extends", "loss/28-renewals-fail", "loss/28-renewals-fail-after-wait", "lease/24-fixed-lease-ends", "lease/25-ttl-range",
			"waiting/09-granted-on-expiry", "lease/21-abandoned-holder", "combinators/41-one-lost-part", "combinators/42-election-loss"},
		may: []string{"exclusion/07-history-linearizable"},
	},
	{
		name: "a release frees nothing",
		build: onGrant(func(_ *wrap, _ *service, _ backend.Request, g *wrapGrant) {
			g.release = func(context.Context) error { return nil }
		}),
		must: []string{"exclusion/03-reacquire-after-release", "combinators/41-all-opposite-order", "combinators/41-all-or-nothing",
			"combinators/42-election-resign", "combinators/42-leader-seen"},
		slows: true,
	},
	{
		name: "frees before the TTL has passed",
		build: func(w *wrap, _ *service) {
			w.request = func(req *backend.Request) { req.TTL = req.TTL * 3 / 4 }
			w.grant = func(_ backend.Request, g backend.Grant) backend.Grant {
				wg := &wrapGrant{Grant: g}
				wg.until = func() time.Time { return time.Time{} }
				wg.renew = func(ctx context.Context, ttl time.Duration) error { return g.Renew(ctx, ttl*3/4) }
				return wg
			}
		},
		must: []string{"loss/28-renewals-fail", "loss/28-renewals-fail-after-wait", "lease/24-fixed-lease-ends", "waiting/09-granted-on-expiry",
			"lease/21-abandoned-holder", "combinators/41-one-lost-part", "combinators/42-election-loss"},
		may: []string{"release/19-overlaps-renewal", "exclusion/07-history-linearizable"},
	},
	{
		name: "abandon does nothing",
		build: func(w *wrap, _ *service) {
			w.abandon = func(context.Context, backend.Request) error { return nil }
		},
		must: []string{"ambiguity/34-acquire-reply-dropped", "ambiguity/34-hand-off-reply-dropped", "ambiguity/34-abandon-reply-dropped",
			"ambiguity/34-abandoned-together"},
	},
	{
		name:  "a cancelled waiter leaves its place in the queue",
		build: onQueue(func(q *queue) { q.ghosts = true }, nil),
		must: []string{"cancellation/15-leaves-no-place", "cancellation/16-cancel-races-grant", "waiting/12-fifo-cancelled-waiters",
			"lifecycle/37-close-ends-waits", "combinators/41-all-or-nothing", "ambiguity/34-abandoned-together"},
		may: []string{"waiting/12-dead-waiter", "exclusion/07-history-linearizable", "cancellation/15-leaves-no-goroutine", "waiting/08-timed-wait"},
	},
	{
		name:  "each dead waiter of a process costs a provisional TTL",
		build: onQueue(func(q *queue) { q.deadFor = 1500 * time.Millisecond }, nil),
		harness: func(h *conformance.Harness, _ *service) {
			h.Budget.DeadProcess = 100 * time.Millisecond
		},
		must: []string{"waiting/12-dead-waiters-of-one-process", "waiting/12-dead-processes"},
	},
	{
		name: "wakes all waiters at each release",
		build: onQueue(func(q *queue) { q.herd, q.barge = true, true }, func(c *backend.Capabilities) {
			c.Order = backend.Unordered
		}),
		harness: func(h *conformance.Harness, s *service) {
			count := func(context.Context) (int64, error) { return s.queue.commands.Load(), nil }
			h.ServerCommands, h.Wakes = count, count
			h.Budget = conformance.Budget{WakesPerRelease: 1, HandOffCommands: 2, IdleHolderCommands: 4, IdleWaiterCommands: 1}
		},
		must: []string{"waiting/11-wakes-per-release", "waiting/11-hand-off-commands", "waiting/13-idle-waiter-commands"},
	},
	{
		name:  "serves the last comer first",
		build: onQueue(func(q *queue) { q.lifo, q.slow = true, 2*time.Second }, nil), // slow: no waiter asks just before a later one comes
		must:  []string{"waiting/10-served-beside-relocks", "waiting/12-fifo", "waiting/12-fifo-cancelled-waiters", "waiting/12-dead-waiter"},
		may:   []string{"ambiguity/34-hand-off-reply-dropped"},
	},
	{
		name:  "an attempt overtakes those who wait",
		build: onQueue(func(q *queue) { q.barge = true }, nil),
		must:  []string{"waiting/12-try-does-not-overtake"},
	},
	{
		name:  "claims push but polls",
		build: onQueue(func(q *queue) { q.poll, q.slow = 10*time.Millisecond, 2*time.Second }, nil),
		must:  []string{"waiting/10-push-is-prompt"},
		slows: true,
	},
}

// free frees a key, whichever client holds it, and notifies no client.
func (w *wrap) free(ctx context.Context, key string) {
	info, err := w.Backend.Inspect(ctx, key)
	if err == nil && info.Holder != nil {
		_ = w.Backend.Abandon(ctx, backend.Request{Key: key, Owner: info.Holder.Owner})
	}
}

func onName(f func(string) string) func(*wrap, *service) {
	return func(w *wrap, _ *service) {
		w.request = func(req *backend.Request) { req.Key = f(req.Key) }
	}
}

func keyOf(f func(string) string) func(*conformance.Harness, *service) {
	return func(h *conformance.Harness, _ *service) { h.KeyOf = f }
}

// losesWakeUps looks at the key, and only then begins to listen.
func losesWakeUps(w *wrap, s *service) {
	w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
		info, err := w.Backend.Inspect(ctx, req.Key)
		if err != nil || info.Holder == nil || len(info.Waiters) > 0 {
			return w.Backend.Acquire(ctx, req)
		}
		held := info.Holder.Owner
		for start := time.Now(); time.Since(start) < 200*time.Microsecond; {
		}
		if info, err = w.Backend.Inspect(ctx, req.Key); err == nil && (info.Holder == nil || info.Holder.Owner != held) {
			<-ctx.Done() // the release came in between, and there will be no other
			return nil, ctx.Err()
		}
		return w.Backend.Acquire(ctx, req)
	}
}
