package record_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// waits begins to wait. The channel gets the grant.
func waits(t *testing.T, q *record.Queue, owner string) <-chan backend.Grant {
	t.Helper()
	return waitsUntil(t.Context(), t, q, owner)
}

func waitsUntil(ctx context.Context, t *testing.T, q *record.Queue, owner string) <-chan backend.Grant {
	t.Helper()
	granted := make(chan backend.Grant, 1)
	go func() {
		g, err := q.Acquire(ctx, request(owner))
		switch {
		case err == nil:
			granted <- g
		case ctx.Err() == nil:
			t.Errorf("%s: %v", owner, err)
		case backend.OutcomeUnknown(err): // as package lock does
			if err := q.Locks.Abandon(context.WithoutCancel(ctx), request(owner)); err != nil {
				t.Errorf("%s: %v", owner, err)
			}
		}
		close(granted)
	}()
	synctest.Wait()
	return granted
}

// polling returns the queue of another process whose service does not notify.
func polling(w *watching) *record.Queue {
	return &record.Queue{Locks: record.New(w, record.Options{}), Poll: 200 * time.Millisecond, FastPoll: 4 * time.Millisecond}
}

// kinds are the two ways to learn of a change.
var kinds = map[string]func(*watching) *record.Queue{"watched": queue, "polled": polling}

// A process that locks again as soon as it has unlocked gets the lock after one that waits, by Lock and by TryLock.
func TestRelock(t *testing.T) {
	for kind, open := range kinds {
		for _, tries := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWatching()
				a, b := open(w), open(w)
				lockAgain := func() (g backend.Grant) {
					for g == nil {
						var err error
						if !tries {
							g, err = a.Acquire(t.Context(), request(fmt.Sprint("a", time.Now().UnixNano())))
							nothing(t, err)
						} else if g, err = a.Locks.TryAcquire(t.Context(), request(fmt.Sprint("a", time.Now().UnixNano()))); err != nil {
							time.Sleep(time.Millisecond)
						}
					}
					return g
				}
				g := lockAgain()
				granted := waits(t, b, "b")
				for cycle := 1; ; cycle++ {
					time.Sleep(time.Second)
					nothing(t, g.Release(t.Context()))
					again := make(chan backend.Grant)
					go func() { again <- lockAgain() }()
					select {
					case g = <-again:
					case got := <-granted:
						nothing(t, got.Release(t.Context()))
						nothing(t, (<-again).Release(t.Context()))
						if cycle > 1 {
							t.Errorf("%s, tries %v: the waiter was served after %d holds", kind, tries, cycle)
						}
						return
					}
					if cycle > 5 {
						t.Fatalf("%s, tries %v: the waiter was not served in %d holds", kind, tries, cycle)
					}
				}
			})
		}
	}
}

// Processes that wait are served in the order in which they came, also while those that were served come again.
func TestProcessesTakeTurns(t *testing.T) {
	for kind, open := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching()
			g := take(t, open(w).Locks, "first")
			var order []string
			const processes, rounds = 6, 4
			served := make(chan string)
			var all sync.WaitGroup
			defer all.Wait()
			for i := range processes {
				name := fmt.Sprint("p", i)
				q := open(w)
				all.Go(func() {
					for range rounds {
						g, err := q.Acquire(t.Context(), request(name+fmt.Sprint(time.Now().UnixNano())))
						if err != nil {
							t.Error(err)
							return
						}
						served <- name
						time.Sleep(time.Second)
						if err := g.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
				time.Sleep(time.Second) // it has its place
			}
			nothing(t, g.Release(t.Context()))
			for range processes * rounds {
				order = append(order, <-served)
			}
			want := strings.Repeat(strings.Join(order[:processes], " ")+" ", rounds)
			if got := strings.Join(order, " ") + " "; got != want || order[0] != "p0" || order[processes-1] != "p5" {
				t.Errorf("%s: served %s", kind, got)
			}
		})
	}
}

// The waiters of one process and those of another one take turns, process by process.
func TestProcessWithManyWaiters(t *testing.T) {
	for kind, open := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching()
			many, one := open(w), open(w)
			g := take(t, many.Locks, "holder")
			served := make(chan string)
			const waiters = 20
			var all sync.WaitGroup
			defer all.Wait()
			for i := range waiters {
				granted := waits(t, many, fmt.Sprint("m", i))
				all.Go(func() {
					g := <-granted
					served <- "many"
					time.Sleep(time.Second)
					if err := g.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			alone := waits(t, one, "one")
			time.Sleep(time.Second)
			nothing(t, g.Release(t.Context()))
			before := 0
			for range waiters + 1 {
				select {
				case <-served:
					before++
				case g := <-alone:
					if before > 1 {
						t.Errorf("%s: %d holds of another process before a process that waits", kind, before)
					}
					alone = nil
					nothing(t, g.Release(t.Context()))
				}
			}
		})
	}
}

// A wait for a short hold writes no place, and a free lock costs what it costs without waiters.
func TestPlaceIsWrittenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, queue(w).Locks, "a")
		granted := waits(t, queue(w), "b")
		time.Sleep(99 * time.Millisecond)
		nothing(t, g.Release(t.Context()))
		nothing(t, (<-granted).Release(t.Context()))
		if n := w.written(); n != 4 {
			t.Errorf("%d writes of two holds, want 4", n)
		}
	})
}

// A place is written once, whatever the holder does, and costs the holder one write that is refused.
func TestPlaceIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, queue(w).Locks, "a")
		granted := waits(t, queue(w), "b")
		for range 10 {
			time.Sleep(ttl / 3)
			nothing(t, g.Renew(t.Context(), ttl))
		}
		if n := w.written(); n != 12 {
			t.Errorf("%d writes, want those of the holder and one", n)
		}
		nothing(t, g.Release(t.Context()))
		nothing(t, (<-granted).Release(t.Context()))
	})
}

// The place that a waiter writes prolongs no lease, and hides no renewal.
func TestPlaceProlongsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		g := take(t, queue(w).Locks, "a")
		observer := record.New(w, record.Options{})
		refused(t, observer, "o", "a")
		time.Sleep(ttl - 500*time.Millisecond)
		nothing(t, g.Renew(t.Context(), ttl))
		refused(t, observer, "o", "a")
		ctx, cancel := context.WithCancel(t.Context())
		time.Sleep(ttl - time.Second)
		granted := waitsUntil(ctx, t, queue(w), "b")
		time.Sleep(500 * time.Millisecond) // it has its place
		refused(t, observer, "o", "a")
		cancel()
		<-granted // and no more
		time.Sleep(500*time.Millisecond - time.Nanosecond)
		refused(t, observer, "o", "a")
		time.Sleep(time.Nanosecond)
		take(t, observer, "o")
		if err := g.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
			t.Errorf("want ErrLost, got %v", err)
		}
	})
}

// The token of a holder stays when a waiter writes the record, also if the token is the version.
func TestPlaceKeepsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		opt := record.Options{Token: func(version string) (n uint64) { _, _ = fmt.Sscan(version, &n); return n }}
		open := func() *record.Queue {
			return &record.Queue{Locks: record.New(w, opt), Watch: w.watch, Poll: poll}
		}
		holder := open()
		g := take(t, holder.Locks, "a")
		granted := waits(t, open(), "b")
		time.Sleep(time.Second)
		info, err := holder.Locks.Inspect(t.Context(), "k")
		nothing(t, err)
		if info.Holder == nil || info.Holder.Token != g.Token() || info.Holder.Metadata != "by a" || len(info.Waiters) != 1 {
			t.Errorf("want token %d and one waiter, got %+v", g.Token(), info)
		}
		nothing(t, g.Release(t.Context()))
		if got := <-granted; got.Token() <= g.Token() {
			t.Errorf("token %d after %d", got.Token(), g.Token())
		}
	})
}

// Many renewals at once keep the places.
func TestRenewAllKeepsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		l := record.New(w, record.Options{})
		g := take(t, l, "a")
		granted := waits(t, queue(w), "b")
		time.Sleep(time.Second)
		for _, err := range l.RenewAll(t.Context(), []backend.Renewal{{Grant: g, TTL: ttl}}, batch{memory: w.memory}) {
			nothing(t, err)
		}
		if info, err := l.Inspect(t.Context(), "k"); err != nil || len(info.Waiters) != 1 {
			t.Errorf("want one waiter, got %+v, %v", info, err)
		}
		nothing(t, g.Release(t.Context()))
		nothing(t, (<-granted).Release(t.Context()))
	})
}

// A waiter that gives up takes its place with it, as far as no other one of its process waits.
func TestPlaceIsRemoved(t *testing.T) {
	for kind, open := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching()
			g := take(t, open(w).Locks, "a")
			q := open(w)
			one, cancelOne := context.WithCancel(t.Context())
			two, cancelTwo := context.WithCancel(t.Context())
			first, second := waitsUntil(one, t, q, "b"), waitsUntil(two, t, q, "c")
			time.Sleep(time.Second)
			places := func(want int) {
				t.Helper()
				if info, err := q.Locks.Inspect(t.Context(), "k"); err != nil || len(info.Waiters) != want {
					t.Errorf("%s: want %d waiters, got %+v, %v", kind, want, info, err)
				}
			}
			places(1)
			cancelOne()
			<-first
			places(1)
			cancelTwo()
			<-second
			places(0)
			nothing(t, g.Release(t.Context()))
			take(t, open(w).Locks, "d")
		})
	}
}

// A place that is written late, after its waiter has given up, is refused.
func TestLatePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		holder := record.New(w, record.Options{})
		g := take(t, holder, "a")
		before := w.items["k"]
		var late atomic.Bool
		late.Store(true)
		q := &record.Queue{Locks: record.New(delayed{w, &late}, record.Options{}), Watch: w.watch, Poll: poll}
		ctx, cancel := context.WithCancel(t.Context())
		ended := waitsUntil(ctx, t, q, "b")
		time.Sleep(150 * time.Millisecond)
		late.Store(false)
		cancel()
		<-ended
		if after := w.items["k"]; after.Version == before.Version {
			t.Error("the place may be written into the version that the waiter has read")
		}
		nothing(t, g.Release(t.Context()))
		take(t, holder, "c")
	})
}

// delayed is a service that does not execute writes for now.
type delayed struct {
	*watching
	late *atomic.Bool
}

func (d delayed) Write(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if d.late.Load() {
		return "", errNoReply
	}
	return d.watching.Write(ctx, key, value, version, ttl)
}
