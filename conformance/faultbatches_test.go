package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

// onAbandonBatch is a build function that changes AbandonBatch. each abandons by itself.
func onAbandonBatch(f func(w *wrap, each func([]backend.Request) []error, reqs []backend.Request) []error) func(*wrap, *service) {
	return func(w *wrap, _ *service) {
		w.batch = func(ctx context.Context, reqs []backend.Request) []error {
			return f(w, func(some []backend.Request) []error {
				errs := make([]error, len(some))
				for i, req := range some {
					errs[i] = w.Abandon(ctx, req)
				}
				return errs
			}, reqs)
		}
	}
}

// onBatch is a build function that makes a backend renew many at once.
func onBatch(f func(all []backend.Renewal) (answer func([]error) []error)) func(*wrap, *service) {
	return func(w *wrap, _ *service) { w.together = f }
}

var faultsOfBatches = []fault{
	{
		name:  "none, with batches of renewals",
		build: onBatch(func([]backend.Renewal) func([]error) []error { return nil }),
	},
	{
		name: "a batch hides what was lost",
		build: onBatch(func([]backend.Renewal) func([]error) []error {
			return func(errs []error) []error { return make([]error, len(errs)) }
		}),
		must: []string{"lease/22-renewed-together"},
	},
	{
		name: "a batch mixes up its answers",
		build: onBatch(func([]backend.Renewal) func([]error) []error {
			return func(errs []error) []error { return append(errs[1:], errs[0]) }
		}),
		must: []string{"lease/22-renewed-together"},
	},
	{
		name: "a batch fails with the first that is lost",
		build: onBatch(func([]backend.Renewal) func([]error) []error {
			return func(errs []error) []error {
				var first error
				for i := range errs {
					if first != nil {
						errs[i] = first
					} else if errors.Is(errs[i], backend.ErrLost) {
						first = errors.New("the batch was given up")
					}
				}
				return errs
			}
		}),
		must: []string{"lease/22-renewed-together"},
	},
	{
		name: "a batch renews all to the longest",
		build: onBatch(func(all []backend.Renewal) func([]error) []error {
			var most time.Duration
			for _, r := range all {
				most = max(most, r.TTL)
			}
			for i := range all {
				all[i].TTL = most
			}
			return nil
		}),
		must: []string{"lease/22-renewed-together"},
	},
	{
		name: "a batch renews nothing and says that it did",
		build: onBatch(func(all []backend.Renewal) func([]error) []error {
			for i := range all {
				all[i].TTL = time.Millisecond // which extends nothing
			}
			return nil
		}),
		must: []string{"lease/22-renewed-together"},
		may:  []string{"lifecycle/38-hundreds-of-keys"},
	},
	{
		name: "a batch abandons its first attempts only",
		build: onAbandonBatch(func(_ *wrap, each func([]backend.Request) []error, reqs []backend.Request) []error {
			return append(each(reqs[:len(reqs)/2]), make([]error, len(reqs)-len(reqs)/2)...)
		}),
		must: []string{"ambiguity/34-abandoned-together"},
	},
	{
		name: "a batch of abandoned attempts ends with the first that does not hold its key",
		build: onAbandonBatch(func(w *wrap, each func([]backend.Request) []error, reqs []backend.Request) []error {
			for i, req := range reqs {
				if info, err := w.Backend.Inspect(context.Background(), req.Key); err == nil && (info.Holder == nil || info.Holder.Owner != req.Owner) {
					return append(each(reqs[:i]), make([]error, len(reqs)-i)...)
				}
			}
			return each(reqs)
		}),
		must: []string{"ambiguity/34-abandoned-together"},
	},
	{
		name: "a batch of abandoned attempts frees the keys of other attempts",
		build: onAbandonBatch(func(w *wrap, each func([]backend.Request) []error, reqs []backend.Request) []error {
			for _, req := range reqs {
				w.free(context.Background(), req.Key)
			}
			return each(reqs)
		}),
		must: []string{"ambiguity/34-abandoned-together"},
	},
	{
		name: "a batch of abandoned attempts has one answer",
		build: onAbandonBatch(func(_ *wrap, each func([]backend.Request) []error, reqs []backend.Request) []error {
			return each(reqs)[:1]
		}),
		must: []string{"ambiguity/34-abandoned-together"},
	},
}
