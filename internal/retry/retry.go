// Package retry has what is needed to send a failed request again.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// Backoff is a pause that doubles each time: about Next, at most Max. Both must be at
// least 2 ns. It is not safe for concurrent use.
type Backoff struct{ Next, Max time.Duration }

// Default returns the backoff of requests that free a lock: 10 ms to 500 ms.
func Default() *Backoff { return &Backoff{Next: 10 * time.Millisecond, Max: 500 * time.Millisecond} }

// Wait sleeps for a random time between half of Next and Next, and doubles Next. It
// returns false as soon as ctx ends.
func (b *Backoff) Wait(ctx context.Context) bool {
	pause := b.Next/2 + rand.N(b.Next/2)
	b.Next = min(2*b.Next, b.Max)
	return call.Sleep(ctx, pause)
}

// Do repeats f, each time bounded as by Once, until it succeeds, fails for good or ctx
// ends. It returns the last error of f. ErrLost is final.
func Do(ctx context.Context, ttl time.Duration, f func(context.Context) error) error {
	pause := Default()
	for {
		err := Once(ctx, ttl, f)
		if err == nil || errors.Is(err, backend.ErrLost) || !Transient(err) || !pause.Wait(ctx) {
			return err
		}
	}
}

// Once calls f with a context that ends after Timeout(ttl).
func Once(ctx context.Context, ttl time.Duration, f func(context.Context) error) error {
	return Within(ctx, Timeout(ttl), f)
}

// Within calls f with a context that ends after d.
func Within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	var within call.Context
	within.Init(ctx, ctx, time.Now().Add(d))
	defer within.End(context.Canceled)
	return OwnTimeout(ctx, f(&within))
}

// OwnTimeout returns err without context.DeadlineExceeded while ctx has not ended, and if a wait
// limit ended it: then the deadline was not that of the caller.
func OwnTimeout(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && limitOf(ctx) == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return Without(err, context.DeadlineExceeded, strings.ReplaceAll(err.Error(), context.DeadlineExceeded.Error(), "no answer in time"))
}

// Known returns err without backend.ErrUncertain: the outcome does not matter, or has become
// known.
func Known(err error, suffix string) error {
	return Without(err, backend.ErrUncertain, strings.ReplaceAll(err.Error(), backend.ErrUncertain.Error()+": ", "")+suffix)
}

// Without returns an error that matches what err matches, but not target.
func Without(err, target error, text string) error { return without{err, target, text} }

type without struct {
	err, target error
	text        string
}

func (w without) Error() string        { return w.text }
func (w without) Is(target error) bool { return target != w.target && errors.Is(w.err, target) }
func (w without) As(target any) bool   { return errors.As(w.err, target) }

// Timeout bounds one request of a lock with a TTL, so that several fit into the TTL.
func Timeout(ttl time.Duration) time.Duration {
	return min(max(ttl/4, 100*time.Millisecond), 2*time.Second)
}

// Transient reports whether a request that failed with err may succeed later.
func Transient(err error) bool {
	return !errors.Is(err, backend.ErrInvalid) && !errors.Is(err, backend.ErrClosed) && !errors.Is(err, errors.ErrUnsupported)
}

// ContextError returns ctx.Err(), joined with the cause if the cause says more. If a wait limit
// ended ctx, it returns the limit alone.
func ContextError(ctx context.Context) error {
	if limit := limitOf(ctx); limit != nil {
		return limit
	}
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// FromCause reports whether err matches the cause of ctx, if that is another error than
// ctx.Err(). A driver, or its client library, may return that cause. Then err says nothing
// about the request, even if it matches a sentinel such as ErrClosed or ErrLost.
func FromCause(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return cause != ctx.Err() && errors.Is(err, cause) //nolint:errorlint // the very error of ctx
}

// WithContext returns err, joined with the error of ctx if ctx has ended and err does
// not match that error.
func WithContext(ctx context.Context, err error) error {
	if limit := limitOf(ctx); limit != nil {
		if err = OwnTimeout(ctx, err); errors.Is(err, limit) {
			return err
		}
	}
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w; %w", ContextError(ctx), err)
}
