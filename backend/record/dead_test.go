package record_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// die lets n processes wait for a grant until they have their places, and then die.
func die(t *testing.T, w *watching, open func(*watching) *record.Queue, g backend.Grant, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for i := range n {
		q := open(w)
		go func() {
			_, err := q.Acquire(ctx, request(fmt.Sprint("dead", i)))
			ended <- err
		}()
		time.Sleep(time.Second)
		nothing(t, g.Renew(t.Context(), ttl))
	}
	cancel()
	for range n { // they are not abandoned
		if err := <-ended; !errors.Is(err, context.Canceled) || !backend.OutcomeUnknown(err) {
			t.Errorf("a waiter with a place: want an unknown outcome, got %v", err)
		}
	}
}

// A dead process that waits delays the next one by its turn, and all of them together by no more than the TTL.
func TestDeadWaiters(t *testing.T) {
	for kind, open := range kinds {
		for dead, bound := range map[int]time.Duration{1: time.Second, 3: 3 * time.Second, 20: ttl} {
			synctest.Test(t, func(t *testing.T) {
				w := newWatching()
				g := take(t, open(w).Locks, "a")
				die(t, w, open, g, dead)
				granted := waits(t, open(w), "b")
				time.Sleep(time.Second)
				nothing(t, g.Renew(t.Context(), ttl))
				nothing(t, g.Release(t.Context()))
				begun := time.Now()
				next := <-granted
				if took := time.Since(begun); took < bound || took > bound+300*time.Millisecond {
					t.Errorf("%s: granted %v after the release behind %d dead processes, want %v", kind, took, dead, bound)
				}
				nothing(t, next.Release(t.Context()))
				take(t, open(w).Locks, "c") // the dead ones are gone
			})
		}
	}
}

// The waiters of a dead holder take its lock in their order.
func TestDeadHolderOfWaiters(t *testing.T) {
	for kind, open := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching()
			take(t, open(w).Locks, "a")
			served := make(chan int, 5)
			for i := range cap(served) {
				granted := waits(t, open(w), fmt.Sprint("b", i))
				go func() {
					served <- i
					g := <-granted
					if err := g.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}()
				<-served
				time.Sleep(500 * time.Millisecond)
			}
			time.Sleep(ttl + time.Second)
			if info, err := open(w).Locks.Inspect(t.Context(), "k"); err != nil || info.Holder != nil || len(info.Waiters) > 0 {
				t.Errorf("%s: want it free, got %+v, %v", kind, info, err)
			}
		})
	}
}

// A process that tries once behind a dead one gets a lock that has been free for a turn, if the service says so. One
// that tries again has seen that itself.
func TestTryBehindADeadWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, queue(w).Locks, "a")
		die(t, w, queue, g, 1)
		nothing(t, g.Release(t.Context()))
		once := func() error {
			_, err := record.New(&timed{memory: w.memory}, record.Options{}).TryAcquire(t.Context(), request("once"))
			return err
		}
		again := record.New(w, record.Options{})
		for _, try := range []error{once(), func() error { _, err := again.TryAcquire(t.Context(), request("c")); return err }()} {
			var locked *backend.LockedError
			if !errors.As(try, &locked) || locked.Holder.Owner != "" {
				t.Errorf("a free lock for which a process waits: want ErrLocked without a holder, got %v", try)
			}
		}
		time.Sleep(time.Second - time.Nanosecond)
		if err := once(); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("before the turn has passed: want ErrLocked, got %v", err)
		}
		time.Sleep(time.Nanosecond)
		g = take(t, again, "c")
		nothing(t, g.Release(t.Context()))
		nothing(t, once())
	})
}

// The service measures the turns of a free lock for a process that tries once.
func TestTryOnceBehindADeadWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, queue(w).Locks, "a")
		die(t, w, queue, g, 2)
		nothing(t, g.Release(t.Context()))
		time.Sleep(2*time.Second - time.Nanosecond)
		m := &timed{memory: w.memory}
		if _, err := record.New(m, record.Options{}).TryAcquire(t.Context(), request("b")); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("before the turns have passed: want ErrLocked, got %v", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := record.New(w, record.Options{}).TryAcquire(t.Context(), request("b")); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("without a clock of the service: want ErrLocked, got %v", err)
		}
		take(t, record.New(m, record.Options{}), "b")
		if m.asked != 2 {
			t.Errorf("the service was asked %d times", m.asked)
		}
	})
}

// A record that is kept for a minimum hold gets no place: the service measures from its last write.
func TestNoPlaceInAKeptRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, queue(w).Locks, "a")
		keep(t, g, 5*time.Second)
		before := w.written()
		granted := waits(t, queue(w), "b")
		time.Sleep(4 * time.Second)
		if w.written() != before {
			t.Error("a waiter wrote a record that is kept")
		}
		begun := time.Now()
		nothing(t, (<-granted).Release(t.Context()))
		if took := time.Since(begun); took > time.Second {
			t.Errorf("granted %v later", took)
		}
	})
}

// Break frees the lock for the first process that waits.
func TestBreakForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		take(t, queue(w).Locks, "a")
		granted := waits(t, queue(w), "b")
		time.Sleep(time.Second)
		other := record.New(w, record.Options{})
		_, err := other.Break(t.Context(), "k", "a")
		nothing(t, err)
		if _, err := other.TryAcquire(t.Context(), request("c")); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("before the first that waits: want ErrLocked, got %v", err)
		}
		nothing(t, (<-granted).Release(t.Context()))
	})
}
