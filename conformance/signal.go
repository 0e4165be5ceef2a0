package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

// signalled waits for the end of a lease and returns the instant at which its
// client called the observer. That is after the lease's context had ended and before
// the core frees the key, in one goroutine; a goroutine that waits for the context
// would add the time that it takes to wake up.
func (t *T) signalled(l *lock.Lease, d time.Duration, what string) time.Time {
	select {
	case <-l.Done():
	case <-time.After(d):
		t.fatalf("%s: want its loss signalled within %v, it was not", what, d)
	}
	if !errors.Is(l.Err(), lock.ErrLost) || !errors.Is(context.Cause(l.Context()), lock.ErrLost) {
		t.fatalf("%s: want it lost, its Err is %v (cause of its context: %v)", what, l.Err(), context.Cause(l.Context()))
	}
	var at time.Time
	t.eventually(t.slack(), what+": Observer.Lost", func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at = t.losses[l.Name()]; at.IsZero() {
			return errors.New("not called")
		}
		return nil
	})
	return at
}

// before checks, with no tolerance, that the loss of l was signalled before
// a grant. A machine whose timers are later than the lease's margin can show
// nothing: then the case begins again.
func (t *T) before(l *lock.Lease, lost time.Time, next locked, what string, late func() time.Duration) {
	gap := next.at.Sub(lost)
	if gap >= 0 {
		t.notef("%s was signalled %v before the successor's grant", what, gap)
		return
	}
	text := fmt.Sprintf("%s: want it signalled before the successor's grant, it came %v after (trusted until %s, lost %s, granted %s to %s)",
		what, -gap, clock(l.Expires()), clock(lost), clock(next.at), leaseText(next.lease))
	if over := next.at.Sub(l.Expires()); over > 0 && late() > over/2 {
		t.again("%s; timers were up to %v late on this machine", text, late())
	}
	t.errorf("%s", text)
}

// lateness begins to measure how late timers are. The function that it returns returns the
// greatest lateness so far.
func (t *T) lateness() func() time.Duration {
	const tick = 5 * time.Millisecond
	var worst, began atomic.Int64 // nanoseconds, since zero
	zero := time.Now()
	ctx, stop := context.WithCancel(t.ctx)
	t.later(func(context.Context) { stop() })
	go func() {
		for ctx.Err() == nil {
			start := time.Now()
			began.Store(int64(start.Sub(zero)))
			time.Sleep(tick) // what is measured
			worst.Store(max(worst.Load(), int64(time.Since(start)-tick)))
		}
	}()
	return func() time.Duration {
		// After a stall the asking goroutine may run before the measuring one.
		pending := time.Since(zero) - time.Duration(began.Load()) - tick
		return max(time.Duration(worst.Load()), pending)
	}
}

func clock(at time.Time) string { return at.Format("15:04:05.000000") }
