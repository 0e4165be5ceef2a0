package lock

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/interlock-go/lock/internal/work"
)

// leaseKey is the context key of the innermost lease.
type leaseKey struct{}

// FromContext returns the lease that ctx belongs to, or nil if there is none: ctx is the context
// of a lease, that of a function that Do, elect.Campaign or schedule.Every calls, or derived from
// one of these. Where such contexts are nested, it is the lease of the innermost. The lease may
// have ended. It is that of the caller of Lock, so the function must not unlock it.
//
//	token, ok := lock.FromContext(ctx).Token()
func FromContext(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// leaseContext is the context of a lease, with the lease as its value.
type leaseContext struct {
	context.Context
	lease  *Lease
	waited atomic.Bool // Done was called by another package than context
}

func (c *leaseContext) Value(key any) any {
	switch key {
	case leaseKey{}:
		return c.lease
	case work.MinHoldKey{}:
		return c.lease.of
	}
	return c.Context.Value(key)
}

// Done returns the channel of the lease's context. Nothing shows who waits for a channel, so that
// makes the lease one that is never reported as forgotten. But package context keeps a context
// that is derived from this one reachable, and with it the lease, until it is canceled.
func (c *leaseContext) Done() <-chan struct{} {
	if !c.waited.Load() {
		var pc [1]uintptr
		runtime.Callers(2, pc[:])
		frame, _ := runtime.CallersFrames(pc[:]).Next()
		pins := strings.HasPrefix(frame.Function, "context.")
		c.waited.Store(!pins)
		c.lease.of.waited(pins)
	}
	return c.Context.Done()
}
