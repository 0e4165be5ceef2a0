package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// TestManyReaders: thousands of readers of one process wait behind a writer. When it unlocks, each is granted and keeps
// its lease.
func TestManyReaders(t *testing.T) {
	provision.LeaveOut(t, "thousands of readers")
	const readers, ttl = 10000, 10 * time.Second
	s, _ := server(t)
	writer := clientOf(t, pgtest.With(s, nil))
	var lost, granted, failed atomic.Int64
	observer := &lock.Observer{Lost: func(context.Context, lock.Event) { lost.Add(1) }}
	c, err := lock.Open(t.Context(), pgtest.With(s, nil), lock.WithTTL(ttl), lock.WithObserver(observer), lock.WithLogger(nil))
	must(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	held, err := writer.Mutex("k").Lock(t.Context())
	must(t, err)
	unlock := make(chan struct{})
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			l, err := c.RWMutex("k").RLock(t.Context())
			if err != nil {
				failed.Add(1)
				t.Log(err)
				return
			}
			granted.Add(1)
			<-unlock
			_ = l.Unlock(context.Background()) // in the background after its timeout
		})
	}
	within := func(ok func() error) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			if err := ok(); err == nil {
				return
			} else if time.Since(begun) > 3*time.Minute {
				t.Error(err)
				return
			}
		}
	}
	within(func() error { return waits(t.Context(), writer, "k", readers) })
	must(t, held.Unlock(t.Context()))
	within(func() error {
		if n := granted.Load() + failed.Load(); n < readers {
			return fmt.Errorf("%d of %d readers have an answer", n, readers)
		}
		return nil
	})
	time.Sleep(2 * ttl) // a lease that is not renewed ends
	if lost.Load()+failed.Load() > 0 {
		t.Errorf("of %d readers %d failed and %d lost their leases", readers, failed.Load(), lost.Load())
	}
	close(unlock)
	all.Wait()
}
