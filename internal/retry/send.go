package retry

import (
	"context"
	"time"
)

type sendLimitKey struct{}

// WithSendLimit returns a context for a request that ends at a time, and that may take limit from when it is sent. In
// a queue it waits longer: if it were given up there, and repeated, it would only lose its place.
func WithSendLimit(ctx context.Context, until time.Time, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithValue(ctx, sendLimitKey{}, limit), until)
}

// SendLimit returns the limit of WithSendLimit or else the time until the deadline; without a deadline it returns most.
func SendLimit(ctx context.Context, most time.Duration) time.Duration {
	if limit, ok := ctx.Value(sendLimitKey{}).(time.Duration); ok {
		return limit
	}
	if d, ok := ctx.Deadline(); ok {
		return time.Until(d)
	}
	return most
}
