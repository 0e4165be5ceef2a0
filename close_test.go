package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		f.take("theirs", "other", time.Hour)
		var leases []*lock.Lease
		for _, name := range []string{"a", "b", "c"} {
			leases = append(leases, mustLock(t, c.Mutex(name)))
		}
		waited := make(chan error)
		go func() {
			_, err := c.Mutex("theirs").Lock(context.Background())
			waited <- err
		}()
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "a wait that closing ended", <-waited, lock.ErrClosed)
		for _, l := range leases {
			wantErr(t, "a lease of a closed client", l.Err(), lock.ErrClosed)
			wantErr(t, "its Unlock", l.Unlock(t.Context()), lock.ErrClosed)
			if f.holder(l.Name()) != "" {
				t.Fatalf("%s is still held", l.Name())
			}
		}
		if f.holder("theirs") != "other" || f.count("close") != 1 {
			t.Fatal("closing touched what is not ours, or did not close the backend once")
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal("second Close:", err)
		}
		_, err := c.Mutex("k").TryLock(t.Context())
		wantErr(t, "TryLock after Close", err, lock.ErrClosed)
		_, err = c.Inspect(t.Context(), "k")
		wantErr(t, "Inspect after Close", err, lock.ErrClosed)
		wantErr(t, "Ping after Close", c.Ping(t.Context()), lock.ErrClosed)
		for _, err := range c.List(t.Context()) {
			wantErr(t, "List after Close", err, lock.ErrClosed)
		}
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		l := mustLock(t, c.Mutex("k"))
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			<-ctx.Done()
			return backend.Uncertain(ctx.Err()), false
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := c.Close(ctx); err == nil {
			t.Fatal("Close did not say that a lock was not freed")
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("Close took %v", took)
		}
		wantErr(t, "Err", l.Err(), lock.ErrClosed)
	})
}

func TestCloseGivesTheBackendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			select {
			case <-time.After(2 * time.Second): // ending its connections
				return nil, true
			case <-ctx.Done():
				return ctx.Err(), false
			}
		}
		if err := newClient(t, f).Close(context.Background()); err != nil {
			t.Errorf("Close of a backend that takes 2 s: %v", err)
		}
	})
}

// hung answers no question.
type hung struct{ *fake }

func TestCloseEndsQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, hung{newFake()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errs := make(chan error, 2)
		go func() { errs <- c.Ping(ctx) }()
		go func() {
			_, err := c.Break(ctx, "k")
			if !errors.Is(err, lock.ErrUncertain) {
				t.Errorf("Break that was under way: got %v, want it uncertain", err)
			}
			errs <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := c.Close(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		for range 2 {
			wantErr(t, "a question that was under way", <-errs, lock.ErrClosed)
		}
	})
}

func TestWhatABackendLacksIsRefused(t *testing.T) {
	c := newClient(t, newFake())
	_, err := c.Inspect(t.Context(), "k")
	wantErr(t, "Inspect", err, errors.ErrUnsupported)
	_, err = c.Break(t.Context(), "k")
	wantErr(t, "Break", err, errors.ErrUnsupported)
	wantErr(t, "Ping", c.Ping(t.Context()), errors.ErrUnsupported)
	n := 0
	for _, err := range c.List(t.Context()) {
		n++
		wantErr(t, "List", err, errors.ErrUnsupported)
	}
	if n != 1 {
		t.Fatalf("List yielded %d times", n)
	}
	_, err = c.Inspect(t.Context(), "")
	wantErr(t, "Inspect of an empty name", err, lock.ErrInvalid)
}
