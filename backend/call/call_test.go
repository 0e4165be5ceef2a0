package call_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// A request is withdrawn if its context ends before it is written. Afterwards it is not known whether it is executed.
func TestContextEnds(t *testing.T) {
	for _, written := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			life := call.NewLife()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begun, wrote := time.Now(), false
			_, err := call.Detached(ctx, life, func(_ context.Context, s *call.Sending) (int, error) {
				if written {
					s.Write()
				}
				time.Sleep(time.Hour)
				wrote = s.Write()
				return 0, nil
			})
			if time.Since(begun) != time.Minute {
				t.Errorf("Detached returned after %v, want the minute of its context", time.Since(begun))
			}
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, backend.ErrUncertain) != written || backend.OutcomeUnknown(err) != written {
				t.Errorf("written %v: got %v", written, err)
			}
			if err := life.Close(t.Context()); err != nil || time.Since(begun) != time.Hour {
				t.Errorf("Close returned %v after %v, want it to wait for the request", err, time.Since(begun))
			}
			if wrote != written {
				t.Errorf("written %v: Write after the context has ended returned %v", written, wrote)
			}
		})
	}
}

func TestResult(t *testing.T) {
	life := call.NewLife()
	failed := errors.New("failed")
	for range 3 { // on the same worker
		if n, err := call.Detached(t.Context(), life, func(_ context.Context, _ *call.Sending) (int, error) { return 7, failed }); n != 7 || !errors.Is(err, failed) {
			t.Fatal(n, err)
		}
	}
	if err := life.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	none := func(context.Context, *call.Sending) (int, error) { t.Error("it was called after Close"); return 0, nil }
	if _, err := call.Detached(t.Context(), life, none); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close: want ErrClosed, got %v", err)
	}
	if life.Go(func() {}) {
		t.Error("a task began after Close")
	}
}

// The deadline of a socket may come before that of the context, whose error the caller is to get.
func TestSocketDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := call.NewLife()
		defer life.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		timeout := errors.New("i/o timeout")
		_, err := call.Detached(late{ctx}, life, func(_ context.Context, _ *call.Sending) (int, error) {
			time.Sleep(time.Second)
			return 0, timeout
		})
		if !errors.Is(err, timeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// late is a context whose timer is late by a millisecond.
type late struct{ context.Context }

func (l late) Deadline() (time.Time, bool) {
	d, ok := l.Context.Deadline()
	return d.Add(-time.Millisecond), ok
}

// TestClose: Close returns when its context ends although a task goes on.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := call.NewLife()
		stop := make(chan struct{})
		life.Go(func() { <-stop })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := life.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if life.Context().Err() == nil {
			t.Error("the context goes on")
		}
		close(stop)
	})
}

func BenchmarkDetached(b *testing.B) {
	life := call.NewLife()
	defer life.Stop()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = call.Detached(b.Context(), life, func(_ context.Context, s *call.Sending) (int, error) { s.Write(); return 1, nil })
	}
}
