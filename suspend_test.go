package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// The monotonic clock stands still while a machine is suspended, and with it all timers.
func TestSuspendedMachine(t *testing.T) {
	const ttl = 9 * time.Second
	synctest.Test(t, func(t *testing.T) {
		slept := time.Duration(0)
		defer lock.SetSuspended(func() time.Duration { return slept })()
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl))
		before := mustLock(t, c.Mutex("before"))
		timers := mustLock(t, c.Mutex("timers"))
		f.setSpoil(func(context.Context, string, int) (error, bool) { return backend.NotExecuted(errNet), false })
		slept += 8 * time.Second
		if err := before.Err(); err != nil {
			t.Fatalf("suspended for less than the TTL: %v", err)
		}
		slept += time.Second
		wantErr(t, "Err after a suspension of a TTL", before.Err(), lock.ErrLost)
		wantErr(t, "Err of its context", before.Context().Err(), context.Canceled)
		// Without a question the timer of the renewal notices it.
		if took := lostAfter(t, timers, time.Now()); took > ttl/3 {
			t.Errorf("the loss was noticed after %v", took)
		}
		f.setSpoil(nil)
		if err := mustLock(t, c.Mutex("after")).Err(); err != nil {
			t.Fatalf("a lease that was granted afterwards: %v", err)
		}
	})
}
