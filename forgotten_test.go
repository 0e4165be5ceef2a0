package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/work"
	"github.com/interlock-go/lock/memlock"
)

// forgetting is a client whose forgotten leases go to a channel.
func forgetting(t *testing.T, opts ...lock.Option) (*lock.Client, <-chan lock.Event) {
	t.Helper()
	reports := make(chan lock.Event, 1000)
	o := &lock.Observer{Forgotten: func(_ context.Context, e lock.Event) { reports <- e }}
	c, err := lock.New(memlock.New(), append([]lock.Option{lock.WithLogger(nil), lock.WithObserver(o)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, reports
}

// acquire locks in a function of its own, so that no variable of the caller has the lease.
//
//go:noinline
func acquire(t *testing.T, m lock.Mutex) *lock.Lease {
	t.Helper()
	l, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// collect runs the garbage collector until an event is reported.
func collect(t *testing.T, reports <-chan lock.Event) lock.Event {
	t.Helper()
	for range 500 {
		runtime.GC()
		select {
		case e := <-reports:
			return e
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("no event of a forgotten lease")
	return lock.Event{}
}

func TestForgotten(t *testing.T) {
	for name, forget := range map[string]func(*testing.T, *lock.Client){
		"lease":   func(t *testing.T, c *lock.Client) { acquire(t, c.Mutex("x")) },
		"context": func(t *testing.T, c *lock.Client) { _ = acquire(t, c.Mutex("x")).Context().Err() },
		"nested": func(t *testing.T, c *lock.Client) {
			m := c.Mutex("x", lock.WithReentry())
			l := acquire(t, m)
			if _, err := m.Lock(l.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"derived contexts": func(t *testing.T, c *lock.Client) {
			l := acquire(t, c.Mutex("x"))
			ctx, cancel := context.WithTimeout(l.Context(), time.Hour)
			cancel()
			<-ctx.Done()
			ctx, cancel = work.WithLease(t.Context(), l)
			cancel()
			<-ctx.Done()
		},
		"part of All": func(t *testing.T, c *lock.Client) { acquire(t, lock.All(c.Mutex("x"))) },
	} {
		t.Run(name, func(t *testing.T) {
			c, reports := forgetting(t)
			forget(t, c)
			if e := collect(t, reports); e.Name != "x" || e.Owner == "" || e.Token == 0 || e.Held <= 0 || e.Place != "" {
				t.Errorf("reported as %+v", e)
			}
			if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
				t.Errorf("TryLock: %v, want the lock held still", err)
			}
		})
	}
}

func TestForgottenIsReleased(t *testing.T) {
	released := make(chan lock.Event, 1)
	c, reports := forgetting(t, lock.WithReleaseForgotten(), lock.WithPlace(),
		lock.WithObserver(&lock.Observer{Released: func(_ context.Context, e lock.Event) { released <- e }}))
	acquire(t, c.Mutex("x"))
	if e := collect(t, reports); !strings.Contains(e.Place, "forgotten_test.go:") {
		t.Errorf("place %q, want this file and a line", e.Place)
	}
	if e := collect(t, released); e.Name != "x" || e.Err != nil {
		t.Errorf("released: %+v", e)
	}
	if err := acquire(t, c.Mutex("x")).Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestForgottenIsLogged(t *testing.T) {
	lines := make(chan string, 10)
	c, err := lock.New(memlock.New(), lock.WithLogger(slog.New(slog.NewTextHandler(lineWriter(lines), nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	acquire(t, c.Mutex("x"))
	for deadline := time.After(10 * time.Second); ; runtime.GC() {
		select {
		case line := <-lines:
			if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "name=x") {
				t.Errorf("logged %q, want a warning with the name", line)
			}
			return
		case <-deadline:
			t.Fatal("nothing is logged")
		default:
		}
	}
}

// lineWriter sends each write to a channel.
type lineWriter chan<- string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// Whatever a program still has of a lease, the lease is not forgotten.
func TestNotForgotten(t *testing.T) {
	nothing := func() {}
	wait := func(done <-chan struct{}) (end func()) {
		go func() { <-done }()
		return nothing
	}
	type contextKey struct{}
	for name, use := range map[string]func(*testing.T, *lock.Client) (end func()){
		"handle": func(t *testing.T, c *lock.Client) func() {
			l := acquire(t, c.Mutex("x"))
			return func() { runtime.KeepAlive(l) }
		},
		"context": func(t *testing.T, c *lock.Client) func() {
			ctx := acquire(t, c.Mutex("x")).Context()
			return func() { runtime.KeepAlive(ctx) }
		},
		"context with a value": func(t *testing.T, c *lock.Client) func() {
			ctx := context.WithoutCancel(context.WithValue(acquire(t, c.Mutex("x")).Context(), contextKey{}, 1))
			return func() { runtime.KeepAlive(ctx) }
		},
		"Done":            func(t *testing.T, c *lock.Client) func() { return wait(acquire(t, c.Mutex("x")).Done()) },
		"Done of context": func(t *testing.T, c *lock.Client) func() { return wait(acquire(t, c.Mutex("x")).Context().Done()) },
		"Done of derived context": func(t *testing.T, c *lock.Client) func() {
			ctx, cancel := context.WithCancel(acquire(t, c.Mutex("x")).Context())
			wait(ctx.Done())
			return cancel
		},
		"Done of WithLease": func(t *testing.T, c *lock.Client) func() {
			ctx, end := work.WithLease(t.Context(), acquire(t, c.Mutex("x")))
			wait(ctx.Done())
			return end
		},
		"function at the end": func(t *testing.T, c *lock.Client) func() {
			context.AfterFunc(acquire(t, c.Mutex("x")).Context(), nothing)
			return nothing
		},
		"All": func(t *testing.T, c *lock.Client) func() {
			l := acquire(t, lock.All(c.Mutex("x"), c.Mutex("y")))
			return func() { runtime.KeepAlive(l) }
		},
		"context of All": func(t *testing.T, c *lock.Client) func() {
			ctx := acquire(t, lock.All(c.Mutex("x"), c.Mutex("y"))).Context()
			return func() { runtime.KeepAlive(ctx) }
		},
		"Done of All": func(t *testing.T, c *lock.Client) func() {
			return wait(acquire(t, lock.All(c.Mutex("x"), c.Mutex("y"))).Done())
		},
		"Done of a context derived from All": func(t *testing.T, c *lock.Client) func() {
			ctx, cancel := context.WithCancel(acquire(t, lock.All(c.Mutex("x"), c.Mutex("y"))).Context())
			wait(ctx.Done())
			return cancel
		},
		"nested": func(t *testing.T, c *lock.Client) func() {
			m := c.Mutex("x", lock.WithReentry())
			l, err := m.Lock(acquire(t, m).Context())
			if err != nil {
				t.Fatal(err)
			}
			return func() { runtime.KeepAlive(l) }
		},
		"unlocked": func(t *testing.T, c *lock.Client) func() {
			if err := acquire(t, c.Mutex("x")).Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			return nothing
		},
		"without renewal": func(t *testing.T, c *lock.Client) func() {
			acquire(t, c.Mutex("x", lock.WithoutRenewal()))
			return nothing
		},
		"Do": func(t *testing.T, c *lock.Client) func() {
			begun, end := make(chan struct{}), make(chan struct{})
			go func() {
				_ = lock.Do(t.Context(), c.Mutex("x"), func(context.Context) error { //nolint:contextcheck // the function ignores its context
					close(begun)
					<-end
					return nil
				})
			}()
			<-begun
			return func() { close(end) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, reports := forgetting(t)
			end := use(t, c)
			for i := range 3 { // a lease may be found by a later collection than another
				acquire(t, c.Mutex(fmt.Sprint("last", i)))
				if e := collect(t, reports); e.Name != fmt.Sprint("last", i) {
					t.Errorf("reported as forgotten: %s", e.Name)
				}
			}
			end()
		})
	}
}

// Leases that are used by their handle or by their context are never reported, while the garbage
// collector runs all the time.
func TestNotForgottenUnderStress(t *testing.T) {
	c, reports := forgetting(t, lock.WithReleaseForgotten())
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() {
			m := c.Mutex(fmt.Sprint("key", i%2))
			for range 100 {
				l := acquire(t, m)
				if i%4 < 2 {
					runtime.Gosched()
				} else {
					l = lock.FromContext(contextOf(l))
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	stopped := make(chan struct{})
	go func() {
		workers.Wait()
		close(stopped)
	}()
	for {
		select {
		case e := <-reports:
			t.Errorf("reported as forgotten: %s", e.Name)
		case <-stopped:
			return
		default:
			runtime.GC()
		}
	}
}

// contextOf returns after a moment in which the program has nothing but the context.
//
//go:noinline
func contextOf(l *lock.Lease) context.Context {
	ctx := l.Context()
	runtime.Gosched()
	return ctx
}
