// Package elect elects a leader among processes: the holder of a lock.Mutex leads.
package elect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/work"
)

// ErrResign is the error that the function of Campaign returns to end its term and to
// campaign again. Candidates that already wait lead first.
var ErrResign = errors.New("resigned")

// Option configures Campaign.
type Option func(*config)

type config struct {
	minPause, maxPause time.Duration
	onRetry            func(error)
}

// WithBackoff sets the pauses before Campaign campaigns again: about least at first,
// doubled each time up to most. After a term longer than most, the next pause is least
// again. The defaults are 100 ms and 10 s.
func WithBackoff(least, most time.Duration) Option {
	return func(c *config) { c.minPause, c.maxPause = least, most }
}

// WithOnRetry makes Campaign call f before each pause, in its own goroutine, with the
// reason: ErrResign, the error of Lock, or the loss of the lease, joined with the error of
// the term's function if that says more than the end of its context.
func WithOnRetry(f func(err error)) Option { return func(c *config) { c.onRetry = f } }

// Campaign locks m, calls lead while m is held, and repeats this until the campaign
// ends. The holder of m is the leader; lock.WithMetadata can publish its address.
//
// lead's context has the values of ctx and the lease, see lock.FromContext. It ends when ctx ends, with the cause of ctx,
// and when the lease is lost, with the cause lock.ErrLost and before another process can
// lead. lead must return soon after that: Campaign waits for it, so that two terms never
// overlap in one process. Campaign releases m when lead returns or panics.
//
//   - lead returns nil or another error than ErrResign: Campaign returns it, joined with
//     the error of the release if there is one.
//   - lead returns ErrResign: Campaign campaigns again after a pause.
//   - The lease is lost before lead returns: the same, whatever lead returns, because
//     a function that was stopped may return any error.
//   - ctx ends while lead runs: Campaign returns nil if lead returned nil or the end of its
//     context, and the release succeeded.
//   - ctx ends at another time, or lead or the release failed: Campaign returns an error that
//     matches ctx.Err(), joined with what failed.
//
// If Lock fails for a reason that may pass, Campaign tries again after a pause. A wait limit
// (lock.WithWait) does not end the campaign: the candidate waits again after the least pause,
// behind the others. Campaign returns an error that repeating cannot change: ErrInvalid, ErrClosed,
// errors.ErrUnsupported, or ErrLocked because ctx is that of a lease of m.
func Campaign(ctx context.Context, m lock.Mutex, lead func(ctx context.Context) error, opts ...Option) error {
	c := &config{minPause: 100 * time.Millisecond, maxPause: 10 * time.Second, onRetry: func(error) {}}
	for _, o := range opts {
		o(c)
	}
	if c.minPause < 2 || c.maxPause < c.minPause { // retry.Backoff needs 2 ns
		return campaignError(m.Name(), fmt.Errorf("%w backoff %v to %v: want a positive pause and one that is not shorter",
			lock.ErrInvalid, c.minPause, c.maxPause))
	}
	pause := &retry.Backoff{Next: c.minPause, Max: c.maxPause}
	for {
		l, err := m.Lock(ctx)
		if err == nil {
			start := time.Now()
			var again bool
			if again, err = runTerm(ctx, l, lead); !again {
				return err
			}
			if time.Since(start) > c.maxPause {
				pause.Next = c.minPause
			}
		} else if errors.Is(err, lock.ErrWaitLimit) && ctx.Err() == nil {
			pause.Next = c.minPause // the candidate has waited already
		} else if ctx.Err() != nil || errors.Is(err, lock.ErrLocked) || !retry.Transient(err) {
			return err
		}
		c.onRetry(err)
		if !pause.Wait(ctx) {
			return campaignError(m.Name(), retry.ContextError(ctx))
		}
	}
}

// runTerm calls lead and then releases l, also if lead panics. It reports whether
// Campaign campaigns again, and returns the result of the campaign or the reason.
func runTerm(ctx context.Context, l *lock.Lease, lead func(context.Context) error) (again bool, err error) {
	term, end := work.WithLease(ctx, l)
	defer end()
	defer func() {
		termErr, leaseErr, leadErr := term.Err(), l.Err(), beyondContext(term, err)
		unlockErr := l.Unlock(ctx)
		ctxErr := retry.ContextError(ctx)
		if ctxErr == nil && leaseErr == nil {
			ctxErr = termErr // the timer of term fired at ctx's deadline, before that of ctx
		}
		switch {
		case ctxErr != nil && leaseErr == nil && leadErr == nil && unlockErr == nil:
			err = nil // a leader that was shut down in order
		case ctxErr != nil:
			err = campaignError(l.Name(), join(ctxErr, leadErr, unlockErr))
		case leaseErr != nil:
			again, err = errors.Is(leaseErr, lock.ErrLost), join(leaseErr, leadErr)
		default:
			again, err = errors.Is(err, ErrResign), join(err, unlockErr)
		}
	}()
	return false, lead(term)
}

func campaignError(name string, err error) error {
	return &lock.Error{Op: "campaign", Name: name, Err: err}
}

// beyondContext returns err, or nil if err says only that ctx has ended.
func beyondContext(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// join returns an error that matches all errs that are not nil, on one line.
func join(errs ...error) (all error) {
	for _, err := range errs {
		switch {
		case all == nil:
			all = err
		case err != nil:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
