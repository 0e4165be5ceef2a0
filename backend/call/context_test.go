package call_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend/call"
)

type key struct{}

// Each way to end is seen by Err, by Done and by a context that is derived, whichever is asked first.
func TestEnd(t *testing.T) {
	for name, ways := range map[string]struct {
		end  func(c *call.Context, cancel context.CancelCauseFunc)
		want error
	}{
		"by the caller": {func(_ *call.Context, cancel context.CancelCauseFunc) { cancel(nil) }, context.Canceled},
		"by End":        {func(c *call.Context, _ context.CancelCauseFunc) { c.End(context.Canceled) }, context.Canceled},
		"by a deadline": {func(*call.Context, context.CancelCauseFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
	} {
		for _, before := range []bool{false, true} { // Done and derived contexts are made before the end
			synctest.Test(t, func(t *testing.T) {
				until, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
				defer cancel(nil)
				var c call.Context
				c.Init(until, until, time.Now().Add(time.Second))
				derive := func() context.Context {
					d, cancel := context.WithCancel(&c)
					t.Cleanup(cancel)
					return d
				}
				var derived context.Context
				if before {
					derived = derive()
					select {
					case <-c.Done():
						t.Errorf("%s: it has ended", name)
					default:
					}
					if c.Err() != nil || derived.Err() != nil {
						t.Errorf("%s: it has ended: %v, %v", name, c.Err(), derived.Err())
					}
				}
				ways.end(&c, cancel)
				synctest.Wait()
				if !before {
					derived = derive()
				}
				if err := c.Err(); !errors.Is(err, ways.want) {
					t.Errorf("%s, asked before: %v: want %v, got %v", name, before, ways.want, err)
				}
				<-c.Done()
				<-derived.Done()
				if err := derived.Err(); !errors.Is(err, ways.want) {
					t.Errorf("%s, derived: want %v, got %v", name, ways.want, err)
				}
				if c.Value(key{}) != 1 {
					t.Errorf("%s: the value is lost", name)
				}
			})
		}
	}
}

func TestDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("cause")
		values, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
		cancel(cause)
		var c call.Context
		c.Init(values, t.Context(), time.Now().Add(time.Second))
		if c.Err() != nil || c.Value(key{}) != 1 {
			t.Errorf("want the values only, got %v, %v", c.Err(), c.Value(key{}))
		}
		<-c.Done()
		if got := context.Cause(&c); got != context.DeadlineExceeded {
			t.Errorf("want its own end, got %v", got)
		}
	})
}

// A context that is derived and ends first leaves nothing at c.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c call.Context
		c.Init(t.Context(), t.Context(), time.Time{})
		called := make(chan struct{})
		stop := context.AfterFunc(&c, func() { close(called) })
		if !stop() || stop() {
			t.Error("want the first stop to say that the function will not be called")
		}
		c.End(context.Canceled)
		synctest.Wait()
		select {
		case <-called:
			t.Error("the function was called")
		default:
		}
		if context.AfterFunc(&c, func() { close(called) }); true {
			<-called
		}
	})
}

func TestConcurrent(t *testing.T) {
	for range 100 {
		until, cancel := context.WithCancel(t.Context())
		var c call.Context
		c.Init(until, until, time.Now().Add(time.Microsecond))
		var wg sync.WaitGroup
		for _, f := range []func(){
			cancel, func() { c.End(context.Canceled) }, func() { <-c.Done() }, func() { _ = c.Err() },
			func() { d, cancel := context.WithCancel(&c); <-d.Done(); cancel() },
		} {
			wg.Go(f)
		}
		wg.Wait()
		if c.Err() == nil {
			t.Fatal("it has not ended")
		}
	}
}

func TestAllocations(t *testing.T) {
	until, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := new(call.Context)
	if n := testing.AllocsPerRun(100, func() {
		*c = call.Context{}
		c.Init(until, until, time.Now().Add(time.Hour))
		_ = c.Err()
		c.End(context.Canceled)
	}); n > 0 {
		t.Errorf("want no allocation, got %v", n)
	}
}
