package record_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// watching is a memory whose changes can be watched.
type watching struct {
	*memory
	mu       sync.Mutex // guards the fields below
	watchers map[chan string]bool
	begun    int
	silent   int // so many changes are not reported
	reads    atomic.Int64
}

func newWatching() *watching {
	return &watching{memory: newMemory(), watchers: map[chan string]bool{}}
}

func (w *watching) Read(ctx context.Context, key string) (record.Item, error) {
	w.reads.Add(1)
	return w.memory.Read(ctx, key)
}

func (w *watching) Write(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	v, err := w.memory.Write(ctx, key, value, version, ttl)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.silent > 0 {
			w.silent--
			return v, nil
		}
		w.send(v)
	}
	return v, err
}

// send replaces what the watchers have not received yet.
func (w *watching) send(version string) {
	for c := range w.watchers {
		select {
		case <-c:
		default:
		}
		c <- version
	}
}

// notify sends a notification without a change.
func (w *watching) notify(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send(version)
}

func (w *watching) watch(context.Context, string) (<-chan string, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan string, 1)
	w.watchers[c] = true
	w.begun++
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watchers, c)
	}, nil
}

// breakOff ends all watches: changes may be missed.
func (w *watching) breakOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.watchers {
		close(c)
	}
	clear(w.watchers)
}

const poll = time.Minute

func queue(w *watching) *record.Queue {
	return &record.Queue{Locks: record.New(w, record.Options{}), Watch: w.watch, Poll: poll}
}

// A waiter is granted the lock as soon as it is free. It reads the record once after each change.
func TestWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		granted := make(chan backend.Grant)
		q := queue(w)
		waits := make(chan struct{})
		req := request("b")
		req.OnWait = func(l *backend.LockedError) {
			if l.Holder.Owner != "a" {
				t.Errorf("waits for %+v", l.Holder)
			}
			close(waits)
		}
		go func() {
			got, err := q.Acquire(t.Context(), req)
			if err != nil {
				t.Error(err)
			}
			granted <- got
		}()
		<-waits
		time.Sleep(time.Second) // the read after the watch has begun, and a place
		nothing(t, g.Renew(t.Context(), ttl))
		synctest.Wait()
		before := w.reads.Load()
		for range 3 {
			time.Sleep(ttl / 2)
			nothing(t, g.Renew(t.Context(), ttl))
			synctest.Wait()
		}
		if n := w.reads.Load() - before; n != 3 {
			t.Errorf("%d reads while the holder renewed 3 times", n)
		}
		begun := time.Now()
		nothing(t, g.Release(t.Context()))
		got := <-granted
		if took := time.Since(begun); took != 0 || got.Token() != g.Token()+1 {
			t.Errorf("granted token %d after %v, the holder had %d", got.Token(), took, g.Token())
		}
		if n := w.reads.Load() - before; n != 4 {
			t.Errorf("%d reads for 3 renewals and the grant", n)
		}
		if len(w.watchers) != 0 {
			t.Error("the watch goes on after the last waiter")
		}
	})
}

// The lock of a dead holder is taken when its TTL has passed since its record was first seen.
func TestWaiterOfADeadHolder(t *testing.T) {
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching()
			take(t, record.New(w, record.Options{}), "a")
			q := queue(w)
			if !watched {
				q.Watch = nil
			}
			begun := time.Now()
			if _, err := q.Acquire(t.Context(), request("b")); err != nil || time.Since(begun) != ttl {
				t.Errorf("granted after %v, %v", time.Since(begun), err)
			}
		})
	}
}

// Without a watch the first waiter reads at intervals, and the others of its process do not.
func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		_, err := w.Write(t.Context(), "k", []byte("another program"), "", 0) // does not expire
		nothing(t, err)
		q := &record.Queue{Locks: record.New(w, record.Options{}), Poll: poll}
		ctx, cancel := context.WithCancel(t.Context())
		const waiters, polls = 10, 20
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				if _, err := q.Acquire(ctx, request(strconv.Itoa(i))); !errors.Is(err, context.Canceled) || backend.OutcomeUnknown(err) {
					t.Errorf("want the end of the context, got %v", err)
				}
			})
		}
		time.Sleep(polls * poll)
		cancel()
		all.Wait()
		if n := w.reads.Load(); n < polls/2 || n > waiters+2*polls {
			t.Errorf("%d reads of %d waiters in %d intervals", n, waiters, polls)
		}
	})
}

// The waiters of a process are served in the order of their calls.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		q := queue(w)
		const waiters = 20
		served := make(chan int)
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				g, err := q.Acquire(t.Context(), request(strconv.Itoa(i)))
				if err != nil {
					t.Error(err)
					return
				}
				served <- i
				if err := g.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // it waits
		}
		before := w.reads.Load()
		nothing(t, g.Release(t.Context()))
		for want := range waiters {
			if got := <-served; got != want {
				t.Errorf("waiter %d was served as number %d", got, want)
			}
		}
		all.Wait()
		if n := w.reads.Load() - before; n != waiters {
			t.Errorf("%d reads for %d grants", n, waiters)
		}
	})
}

// A change that a new watch has missed is read soon.
func TestWatchBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		q := queue(w)
		granted := make(chan error)
		go func() {
			_, err := q.Acquire(t.Context(), request("b"))
			granted <- err
		}()
		synctest.Wait()
		w.mu.Lock()
		w.silent = 1
		w.mu.Unlock()
		nothing(t, g.Release(t.Context()))
		begun := time.Now()
		if err := <-granted; err != nil || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("granted after %v, %v", time.Since(begun), err)
		}
	})
}

// A change that a broken watch has missed is read by the next one.
func TestWatchBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		q := queue(w)
		granted := make(chan error)
		go func() {
			_, err := q.Acquire(t.Context(), request("b"))
			granted <- err
		}()
		synctest.Wait()
		w.breakOff()
		nothing(t, g.Release(t.Context())) // before the waiter runs again
		begun := time.Now()
		if err := <-granted; err != nil || time.Since(begun) != 0 {
			t.Errorf("granted after %v, %v", time.Since(begun), err)
		}
		if w.begun != 2 {
			t.Errorf("%d watches, want 2", w.begun)
		}
	})
}

// Waiters survive a service that fails for less than their TTL. After that all of them end, not one after the
// other.
func TestServiceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		q := queue(w)
		q.Watch = nil
		q.Poll = time.Second
		const waiters = 10
		ended := make(chan error, waiters)
		for i := range waiters {
			go func() {
				_, err := q.Acquire(t.Context(), request(strconv.Itoa(i)))
				ended <- err
			}()
		}
		synctest.Wait()
		down := func(string) error { return errNoReply }
		w.failing(down)
		time.Sleep(ttl * 8 / 10)
		w.failing(nil)
		nothing(t, g.Renew(t.Context(), ttl))
		time.Sleep(2 * q.Poll)
		w.failing(down)
		begun := time.Now()
		for i := range waiters { // the last one leaves the place of the process
			if err := <-ended; !errors.Is(err, errNoReply) || backend.OutcomeUnknown(err) != (i == waiters-1) {
				t.Errorf("want the error of the service, got %v", err)
			}
		}
		if took := time.Since(begun); took < ttl || took > ttl+5*time.Second {
			t.Errorf("the last waiter ended after %v, want soon after %v", took, ttl)
		}
	})
}

// A waiter that ends after a request without a reply says so: it may be executed later.
func TestWaiterEndsAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		q := queue(w)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := q.Acquire(ctx, request("b"))
			ended <- err
		}()
		synctest.Wait()
		writes := 0
		w.failing(func(op string) error {
			if op == "write" {
				writes++
			}
			if writes > 1 { // after the release
				return errNoReply
			}
			return nil
		})
		nothing(t, g.Release(t.Context()))
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !backend.OutcomeUnknown(err) {
			t.Errorf("want the end of the context and an unknown outcome, got %v", err)
		}
		w.failing(nil)
		nothing(t, record.New(w, record.Options{}).Abandon(t.Context(), request("b")))
		take(t, record.New(w, record.Options{}), "c")
	})
}

// A notification wakes a waiter, and is not believed: it has the right version, and says nothing else.
func TestForgedNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		granted := make(chan error)
		go func() {
			_, err := queue(w).Acquire(t.Context(), request("b"))
			granted <- err
		}()
		synctest.Wait()
		for _, version := range []string{"", "1", "2", "18446744073709551615"} {
			w.notify(version)
			synctest.Wait()
		}
		select {
		case err := <-granted:
			t.Fatalf("granted a lock that is held: %v", err)
		default:
		}
		nothing(t, g.Release(t.Context()))
		nothing(t, <-granted)
	})
}

// A change that the waiter has read already is not read again.
func TestNotificationOfAReadVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, record.New(w, record.Options{}), "a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := queue(w).Acquire(ctx, request("b"))
			ended <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		before := w.reads.Load()
		w.notify(w.items["k"].Version)
		synctest.Wait()
		if n := w.reads.Load() - before; n != 0 {
			t.Errorf("%d reads", n)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		nothing(t, g.Release(t.Context()))
	})
}
