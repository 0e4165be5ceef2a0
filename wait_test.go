package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/migrate"
)

// wantWaitLimit fails the test unless err is that of a wait limit, after d.
func wantWaitLimit(t *testing.T, what string, err error, start time.Time, d time.Duration) {
	t.Helper()
	wantErr(t, what, err, lock.ErrWaitLimit)
	wantNot(t, what, err, context.DeadlineExceeded)
	wantNot(t, what, err, context.Canceled)
	var e *lock.Error
	if !errors.As(err, &e) || e.Op != "lock" {
		t.Errorf("%s: %v is no *lock.Error of lock", what, err)
	}
	if took := time.Since(start); took != d {
		t.Errorf("%s: took %v, want %v", what, took, d)
	}
	if n := strings.Count(err.Error(), "wait limit"); n != 1 || strings.Contains(err.Error(), "deadline") {
		t.Errorf("%s: %q, want the wait limit in it once", what, err)
	}
}

// polling is a backend without a queue.
type polling struct{ backend.Backend }

// A wait limit bounds the wait, on a backend with a queue and on one without, and its error
// says who holds the lock.
func TestWaitLimit(t *testing.T) {
	const limit = 2 * time.Second
	whole := func(b *memlock.Backend) backend.Backend { return b }
	for name, wrap := range map[string]func(*memlock.Backend) backend.Backend{
		"queue":          whole,
		"local hand-off": whole,
		"polls":          func(b *memlock.Backend) backend.Backend { return polling{b} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				open := func(opts ...lock.Option) *lock.Client {
					if name == "local hand-off" {
						opts = append(opts, lock.WithLocalHandOff())
					}
					return newClient(t, wrap(space.Backend()), opts...)
				}
				held := mustLock(t, open(lock.WithMetadata("the holder")).Mutex("k"))
				c := open()
				limited := c.Mutex("k", lock.WithWait(limit))
				none := func(context.Context) error { return nil }
				for what, call := range map[string]func(context.Context) error{
					"Lock":     func(ctx context.Context) error { _, err := limited.Lock(ctx); return err },
					"client":   func(ctx context.Context) error { _, err := open(lock.WithWait(limit)).Mutex("k").Lock(ctx); return err },
					"Do":       func(ctx context.Context) error { return lock.Do(ctx, c.Mutex("k"), none, lock.WithWait(limit)) },
					"Do, both": func(ctx context.Context) error { return lock.Do(ctx, limited, none, lock.WithWait(time.Minute)) },
					"Do, both, longer": func(ctx context.Context) error {
						return lock.Do(ctx, c.Mutex("k", lock.WithWait(time.Minute)), none, lock.WithWait(limit))
					},
					"Do of All": func(ctx context.Context) error {
						return lock.Do(ctx, lock.All(c.Mutex("free"), c.Mutex("k")), none, lock.WithWait(limit))
					},
					"All": func(ctx context.Context) error { _, err := lock.All(c.Mutex("free"), limited).Lock(ctx); return err },
					"migration": func(ctx context.Context) error {
						return lock.Do(ctx, migrate.New(c.Mutex("k"), c.Mutex("new"), migrate.PhaseBoth), none, lock.WithWait(limit))
					},
				} {
					start := time.Now()
					later, cancel := context.WithTimeout(t.Context(), time.Hour)
					err := call(later)
					cancel()
					wantWaitLimit(t, what, err, start, limit)
					wantErr(t, what, err, lock.ErrLocked)
					if !strings.Contains(err.Error(), `not granted within the wait limit of 2s; locked by "the holder"`) {
						t.Errorf("%s: %q", what, err)
					}
				}

				// A deadline of the caller that comes first is the caller's.
				ctx, cancel := context.WithTimeout(t.Context(), limit/2)
				defer cancel()
				_, err := limited.Lock(ctx)
				wantErr(t, "Lock past the caller's deadline", err, context.DeadlineExceeded, lock.ErrLocked)
				wantNot(t, "Lock past the caller's deadline", err, lock.ErrWaitLimit)

				if _, err := limited.TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) || errors.Is(err, lock.ErrWaitLimit) {
					t.Errorf("TryLock: %v", err)
				}
				if err := held.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				// Nothing remains of the waits above, and work is not cut.
				for _, m := range []lock.Mutex{limited, c.Mutex("k")} {
					err = lock.Do(t.Context(), m, func(ctx context.Context) error {
						time.Sleep(10 * limit)
						return context.Cause(ctx)
					}, lock.WithWait(limit))
					if err != nil {
						t.Error("Do whose work takes longer than its wait limit:", err)
					}
				}
			})
		})
	}
}

// A wait limit that ends while the service does not answer says nothing of a holder.
func TestWaitLimitWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		for i, driver := range []func(error) error{
			backend.Uncertain,
			func(err error) error { return fmt.Errorf("connecting to 10.0.0.1: %w", err) },
		} {
			f.setSpoil(func(ctx context.Context, _ string, _ int) (error, bool) {
				<-ctx.Done()
				return driver(ctx.Err()), false
			})
			m := c.Mutex(fmt.Sprint("k", i), lock.WithWait(time.Second))
			start := time.Now()
			_, err := m.Lock(t.Context())
			wantWaitLimit(t, "Lock", err, start, 1250*time.Millisecond) // and the wait for Abandon
			wantErr(t, "Lock", err, lock.ErrUncertain)
			wantNot(t, "Lock", err, lock.ErrLocked)
			if _, err := m.TryLock(t.Context()); err == nil || errors.Is(err, lock.ErrWaitLimit) {
				t.Error("TryLock, which has no wait limit:", err)
			}
		}
	})
}

// unreachable is a backend with a queue that cannot be reached.
type unreachable struct{ *fake }

func (unreachable) Acquire(ctx context.Context, _ backend.Request) (backend.Grant, error) {
	<-ctx.Done()
	return nil, backend.NotExecuted(fmt.Errorf("connecting to 10.0.0.1: %w", ctx.Err()))
}

func TestWaitLimitOfAQueueWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := newClient(t, unreachable{newFake()}).Mutex("k", lock.WithWait(time.Second)).Lock(t.Context())
		wantWaitLimit(t, "Lock", err, start, time.Second)
		if !strings.Contains(err.Error(), "10.0.0.1") {
			t.Errorf("%q does not say what failed", err)
		}
	})
}

// ownErrors is a Mutex of another package: its errors are those of its context.
type ownErrors struct{ lock.Mutex }

func (ownErrors) Lock(ctx context.Context) (*lock.Lease, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("own: %w", ctx.Err())
}

func TestWaitLimitOfAForeignMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := ownErrors{newClient(t, newFake()).Mutex("k")}
		start := time.Now()
		err := lock.Do(t.Context(), m, nil, lock.WithWait(time.Second))
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
		wantErr(t, "Do", err, lock.ErrWaitLimit)
		wantNot(t, "Do", err, context.DeadlineExceeded)
	})
}

func TestWaitLimitIsChecked(t *testing.T) {
	c := newClient(t, memlock.New())
	_, err := c.Mutex("k", lock.WithWait(-1)).Lock(t.Context())
	wantErr(t, "a mutex with a negative wait", err, lock.ErrInvalid)
	err = lock.Do(t.Context(), c.Mutex("k"), nil, lock.WithWait(-1))
	wantErr(t, "Do with a negative wait", err, lock.ErrInvalid)
	_, err = lock.Open(t.Context(), "mem:?wait=soon")
	wantErr(t, "a URL", err, lock.ErrInvalid)
	_, err = lock.New(memlock.New(), lock.WithWait(-1))
	wantErr(t, "a client with a negative wait", err, lock.ErrInvalid)
}

// The parameter of the URL, and what overrides it.
func TestWaitLimitOfAURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := lock.OpenConfig(t.Context(), lock.Config{URL: "mem://wait-limit?wait=1s"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		other, err := lock.OpenConfig(t.Context(), lock.Config{URL: "mem://wait-limit?wait=1s", Wait: "3s"})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(t.Context())
		mustLock(t, c.Mutex("k"))
		for want, m := range map[time.Duration]lock.Mutex{
			time.Second: c.Mutex("k"), 2 * time.Second: c.Mutex("k", lock.WithWait(2*time.Second)), 3 * time.Second: other.Mutex("k"),
		} {
			start := time.Now()
			_, err := m.Lock(t.Context())
			wantWaitLimit(t, "Lock", err, start, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = c.Mutex("k", lock.WithWait(0)).Lock(ctx)
		wantErr(t, "Lock without a limit", err, context.DeadlineExceeded)
	})
}
