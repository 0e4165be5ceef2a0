package elect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/elect"
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/memlock"
)

func TestLeaderAndWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		watcher := newClient(t, space.Backend()).Mutex("k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var seen []string
		var all sync.WaitGroup
		all.Go(func() {
			for leader, err := range elect.Watch(ctx, watcher, time.Second) {
				seenLeader := "free"
				if err != nil {
					seenLeader = "error"
				} else if leader != nil {
					seenLeader = leader.Metadata
				}
				seen = append(seen, fmt.Sprintf("%s at %v", seenLeader, time.Since(start)))
			}
		})
		time.Sleep(2500 * time.Millisecond)
		for _, name := range []string{"x:80", "y:80", "y:80"} {
			m := newClient(t, space.Backend(), lock.WithMetadata(name)).Mutex("k")
			err := elect.Campaign(ctx, m, func(context.Context) error {
				h, err := elect.Leader(ctx, watcher)
				if err != nil || h == nil || h.Metadata != name {
					t.Errorf("the leader is %+v, %v", h, err)
				}
				time.Sleep(3 * time.Second)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Second)
		cancel()
		all.Wait()
		want := []string{"free at 0s", "x:80 at 3s", "y:80 at 6s", "y:80 at 9s", "free at 12s"}
		if !slices.Equal(seen, want) {
			t.Errorf("seen %q\nwant %q", seen, want)
		}
		if h, err := elect.Leader(t.Context(), watcher); h != nil || err != nil {
			t.Errorf("%v, %v", h, err)
		}
	})
}

// script is a Mutex that is not of the package lock and can be inspected.
type script struct {
	foreign
	answers []any // one for each Inspect: an error, a *lock.Holder, or nil
}

func (a *script) Inspect(context.Context) (lock.Info, error) {
	next := a.answers[0]
	if len(a.answers) > 1 {
		a.answers = a.answers[1:]
	}
	switch v := next.(type) {
	case error:
		return lock.Info{}, v
	case *lock.Holder:
		return lock.Info{Holder: v}, nil
	}
	return lock.Info{}, nil
}

func TestWatchErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, struct{ backend.Backend }{memlock.New()}) // cannot inspect
		watch := func(m lock.Mutex, interval time.Duration) (got []string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for h, err := range elect.Watch(ctx, m, interval) {
				switch {
				case errors.Is(err, errNet):
					got = append(got, "net")
				case errors.Is(err, lock.ErrInvalid):
					got = append(got, "invalid")
				case errors.Is(err, lock.ErrClosed):
					got = append(got, "closed")
				case errors.Is(err, errors.ErrUnsupported):
					got = append(got, "unsupported")
				case err != nil:
					got = append(got, err.Error())
				case h == nil:
					got = append(got, "free")
				default:
					got = append(got, h.Owner)
				}
			}
			return got
		}
		x := &lock.Holder{Token: 1}
		x.Owner = "x"
		again := &lock.Holder{Token: 2}
		again.Owner = "x"
		for _, w := range []struct {
			m        lock.Mutex
			interval time.Duration
			want     string
		}{
			{&script{foreign{c.Mutex("k")}, []any{nil, nil, x, x, errNet, errNet, x, again, errNet}}, time.Second, "free x net x x net"},
			{&script{foreign{c.Mutex("k")}, []any{errNet, lock.ErrClosed, x}}, time.Second, "net closed"},
			{c.Mutex("k"), time.Second, "unsupported"},
			{lock.All(c.Mutex("k")), time.Second, "unsupported"},
			{foreign{c.Mutex("k")}, time.Second, "unsupported"},
			{c.Mutex(""), time.Second, "invalid"},
			{c.Mutex("k"), 0, "invalid"},
		} {
			if got := strings.Join(watch(w.m, w.interval), " "); got != w.want {
				t.Errorf("got %q, want %q", got, w.want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for h, err := range elect.Watch(ctx, &cutOff{foreign{c.Mutex("k")}, cancel}, time.Second) {
			t.Errorf("yielded %v, %v after the end of its context", h, err)
		}
		for h, err := range elect.Watch(t.Context(), &script{foreign{c.Mutex("k")}, []any{x}}, time.Second) {
			if err != nil || h.Owner != "x" {
				t.Error(h, err)
			}
			break
		}
	})
}

// cutOff cancels the context of Inspect.
type cutOff struct {
	foreign
	cancel context.CancelFunc
}

func (c *cutOff) Inspect(ctx context.Context) (lock.Info, error) {
	c.cancel()
	return lock.Info{}, ctx.Err()
}

// notifying is a service that notifies of changes of its locks when the test says so.
type notifying struct {
	*memlock.Backend
	mu      sync.Mutex
	changed func()
	fail    error // of each watch
	watches int
}

func (n *notifying) WatchChanges(ctx context.Context, _ string, changed func()) error {
	n.mu.Lock()
	n.watches++
	fail := n.fail
	n.changed = changed
	n.mu.Unlock()
	if fail != nil {
		return fail
	}
	changed()
	<-ctx.Done()
	return ctx.Err()
}

// Watch asks after a notification, and not more than ten times in an interval. It polls
// while the watch fails, and watches again.
func TestWatchChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		n := &notifying{Backend: space.Backend(), fail: errNet}
		inspected := &counting{notifying: n}
		c := newClient(t, inspected)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan string, 10)
		var watching sync.WaitGroup
		watching.Go(func() {
			for leader, err := range elect.Watch(ctx, c.Mutex("k"), time.Hour) {
				if err != nil {
					t.Error(err)
				}
				seen <- fmt.Sprint(leader != nil)
			}
		})
		time.Sleep(time.Minute)
		if got := <-seen; got != "false" {
			t.Errorf("of a free lock: want no leader, got %s", got)
		}
		n.mu.Lock()
		if n.watches < 5 {
			t.Errorf("a watch that fails: want it begun again, got %d watches in a minute", n.watches)
		}
		n.fail = nil
		n.mu.Unlock()
		time.Sleep(15 * time.Second)
		l := clienttest.MustLock(t, newClient(t, space.Backend()).Mutex("k"))
		begun, asked := time.Now(), inspected.count()
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		for range 100 {
			changed()
			synctest.Wait()
		}
		if got, took := <-seen, time.Since(begun); got != "true" || took > 6*time.Minute {
			t.Errorf("after a notification: want a leader within a tenth of the interval, got %s after %v", got, took)
		}
		time.Sleep(5 * time.Minute)
		if got := inspected.count() - asked; got > 2 {
			t.Errorf("100 notifications at once: want at most 2 requests in 10 minutes, got %d", got)
		}
		_ = l.Unlock(ctx)
		time.Sleep(time.Hour) // not notified: the interval
		if got := <-seen; got != "false" {
			t.Errorf("without a notification: want the change seen after the interval, got %s", got)
		}
		cancel()
		watching.Wait()
	})
}

// counting counts the requests of Inspect.
type counting struct {
	*notifying
	n atomic.Int64
}

func (c *counting) count() int64 { return c.n.Load() }

func (c *counting) Inspect(ctx context.Context, key string) (backend.Info, error) {
	c.n.Add(1)
	return c.notifying.Inspect(ctx, key)
}
