package conformance_test

import (
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

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
}
