package record_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// A waiter sends no request while others of its process wait, and learns who holds the lock.
func TestLaterWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		q := &record.Queue{Locks: record.New(w, record.Options{}), Poll: poll}
		const waiters = 10
		var all sync.WaitGroup
		for i := range waiters {
			before := w.reads.Load()
			all.Go(func() {
				req := request(strconv.Itoa(i))
				req.OnWait = func(locked *backend.LockedError) {
					if locked.Holder.Owner != "a" {
						t.Errorf("waiter %d waits for %+v", i, locked.Holder)
					}
				}
				g, err := q.Acquire(t.Context(), req)
				if err != nil {
					t.Error(err)
				} else if err = g.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // it waits
			if n := w.reads.Load() - before; i > 0 && n != 0 {
				t.Errorf("waiter %d sent %d requests", i, n)
			}
		}
		nothing(t, g.Release(t.Context()))
		all.Wait()
	})
}

// The intervals between reads begin with FastPoll after each change of the holder, and double up to Poll.
func TestPollsSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		q := &record.Queue{Locks: record.New(w, record.Options{}), Poll: 8 * time.Second, FastPoll: time.Second}
		reads := func(d time.Duration) int64 {
			before := w.reads.Load()
			time.Sleep(d)
			return w.reads.Load() - before
		}
		holder := record.New(w, record.Options{})
		long := request("a")
		long.TTL = time.Hour
		_, err := holder.TryAcquire(t.Context(), long)
		nothing(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = q.Acquire(ctx, request("w")) })
		synctest.Wait()
		if n := reads(7 * time.Second); n < 2 || n > 6 { // intervals of 1, 2 and 4 s
			t.Errorf("%d reads in the first seconds", n)
		}
		reads(time.Minute)
		if n := reads(80 * time.Second); n < 6 || n > 20 { // of 8 s
			t.Errorf("%d reads in ten intervals", n)
		}
		item, err := w.Read(t.Context(), "k")
		nothing(t, err)
		_, err = w.Write(t.Context(), "k", []byte("another program"), item.Version, 0)
		nothing(t, err)
		for reads(100*time.Millisecond) == 0 { // the change was not read yet
		}
		if n := reads(7 * time.Second); n < 2 {
			t.Errorf("%d reads after a change of the holder", n)
		}
		cancel()
		all.Wait()
	})
}
