package retry

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrWaitLimit is matched by the error of a wait that WithWaitLimit ended.
var ErrWaitLimit = errors.New("wait limit reached")

// waitLimit is the cause of a context that WithWaitLimit ended. It stands for ctx.Err(): no
// deadline of the caller has passed.
type waitLimit struct{ after time.Duration }

func (w *waitLimit) Error() string {
	return fmt.Sprintf("not granted within the wait limit of %v", w.after)
}
func (w *waitLimit) Is(target error) bool { return target == ErrWaitLimit }

// WithWaitLimit returns a context that ends d from now at the latest. If d ends it, an error of
// a request under it matches ErrWaitLimit and not context.DeadlineExceeded: ContextError,
// WithContext and OwnTimeout see to that.
func WithWaitLimit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, &waitLimit{d})
}

// LimitReached reports whether a wait limit ended ctx.
func LimitReached(ctx context.Context) bool { return limitOf(ctx) != nil }

// limitOf returns the wait limit that ended ctx, or nil.
func limitOf(ctx context.Context) *waitLimit {
	if ctx.Err() == nil {
		return nil
	}
	limit, _ := context.Cause(ctx).(*waitLimit) //nolint:errorlint // the very cause that WithWaitLimit set
	return limit
}
