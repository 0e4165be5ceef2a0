package lockcmd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
)

// A watcher sends one request for each name in each interval, reports an outage once, and
// ends with its context or with an error that no retry can repair.
func TestWatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := lock.New(memlock.New(), lock.WithMetadata("one"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		var (
			mu       sync.Mutex
			requests = map[string]int{}
			down     error
			reported []string
			ended    = make(chan error)
		)
		fail := func(err error) { mu.Lock(); down = err; mu.Unlock() }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := watcher{
			names: []string{"a", "b"}, interval: time.Second,
			inspect: func(ctx context.Context, name string) (lock.Info, error) {
				mu.Lock()
				defer mu.Unlock()
				requests[name]++
				if down != nil {
					return lock.Info{}, down
				}
				return c.Inspect(ctx, name)
			},
			report: func(c change) error {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, c.Name+" "+c.Event)
				return nil
			},
		}
		go func() { ended <- w.run(ctx) }()
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(reported, want) {
				t.Fatalf("reported %q, want %q", reported, want)
			}
			reported = nil
		}
		next := func() { time.Sleep(time.Second); synctest.Wait() } // by the clock of the test
		expect("a free", "b free")
		l, err := c.Mutex("a").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		expect()
		next()
		expect("a held")
		next()
		expect()
		fail(errors.New("no route"))
		next()
		next()
		expect("a unseen", "b unseen")
		if err := l.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		next()
		expect()
		fail(nil)
		next()
		expect("a free", "b free")
		mu.Lock()
		if requests["a"] != 7 || requests["b"] != 7 {
			t.Errorf("requests %v in 6 intervals", requests)
		}
		mu.Unlock()
		fail(errors.ErrUnsupported)
		next()
		if err := <-ended; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v", err)
		}
		expect()

		fail(nil)
		go func() { ended <- w.run(ctx) }()
		expect("a free", "b free")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%v", err)
		}
	})
}

// A watcher inspects its locks after a notification.
func TestWatcherNotified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		notify := make(chan func(), 1)
		ended := make(chan error)
		var requests atomic.Int64
		w := watcher{
			names: []string{"a"}, interval: time.Hour,
			inspect: func(context.Context, string) (lock.Info, error) { requests.Add(1); return lock.Info{Name: "a"}, nil },
			watch: func(ctx context.Context, _ string, changed func()) error {
				notify <- changed
				<-ctx.Done()
				return ctx.Err()
			},
			report: func(change) error { return nil },
		}
		go func() { ended <- w.run(ctx) }()
		changed := <-notify
		if synctest.Wait(); requests.Load() != 1 {
			t.Errorf("at the beginning: want a request, got %d", requests.Load())
		}
		for range 10 {
			changed()
			synctest.Wait()
		}
		time.Sleep(5 * time.Minute)
		if requests.Load() != 1 {
			t.Errorf("within a tenth of the interval: want no more requests, got %d in all", requests.Load())
		}
		time.Sleep(2 * time.Minute)
		if requests.Load() != 2 {
			t.Errorf("after ten notifications: want one more request, got %d in all", requests.Load())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
