package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
)

// clock tells how far into the bubble's time an instant is: bubbles begin at midnight.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// nodes runs a job on several nodes and notes who ran when.
type nodes struct {
	t    *testing.T
	mu   sync.Mutex
	runs []string
	now  int // running
}

func (n *nodes) job(name string, took time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		n.mu.Lock()
		if n.now++; n.now > 1 {
			n.t.Errorf("two runs at %s", clock(time.Now()))
		}
		n.runs = append(n.runs, name+" "+clock(time.Now()))
		n.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(took):
		}
		n.mu.Lock()
		n.now--
		n.mu.Unlock()
		return context.Cause(ctx)
	}
}

func (n *nodes) want(lines ...string) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if got, want := strings.Join(n.runs, "\n"), strings.Join(lines, "\n"); got != want {
		n.t.Errorf("runs:\n%s\nwant:\n%s", got, want)
	}
}

// One node runs every job for as long as it lives; then another does.
func TestEveryStickyOwnerAndTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		n := &nodes{t: t}
		var all sync.WaitGroup
		ends := map[string]context.CancelFunc{}
		start := func(name string) {
			ctx, cancel := context.WithCancel(t.Context())
			ends[name] = cancel
			m := newClient(t, space.Backend()).Mutex("job")
			all.Go(func() {
				err := lock.Every(ctx, m, 10*time.Minute, n.job(name, time.Minute), lock.WithOffset(5*time.Minute))
				wantErr(t, name, err, context.Canceled)
			})
			synctest.Wait()
		}
		start("x")
		start("y")
		time.Sleep(37 * time.Minute)
		ends["x"]()
		time.Sleep(10 * time.Minute)
		start("x")
		time.Sleep(10 * time.Minute)
		ends["y"]() // 00:57
		time.Sleep(10 * time.Minute)
		ends["x"]()
		all.Wait()
		n.want("x 00:05:00", "x 00:15:00", "x 00:25:00", "x 00:35:00", "y 00:45:00", "y 00:55:00", "x 01:05:00")
	})
}

// A run that takes longer than the interval makes others skip, not pile up.
func TestEverySkipsMissedTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{t: t}
		c := newClient(t, memlock.NewSpace().Backend())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+30*time.Second)
		defer cancel()
		var told []string
		err := lock.Every(ctx, c.Mutex("job"), 10*time.Minute, n.job("x", 25*time.Minute), lock.WithOnRun(func(r lock.Run) {
			told = append(told, fmt.Sprintf("%s %s %v", clock(r.Tick), clock(r.Start), r.Took))
			if len(told) < 2 && r.Err != nil || len(told) == 2 && !errors.Is(r.Err, context.DeadlineExceeded) {
				t.Errorf("run %d: %v", len(told), r.Err)
			}
		}))
		wantErr(t, "Every", err, context.DeadlineExceeded)
		n.want("x 00:10:00", "x 00:40:00")
		if got := strings.Join(told, ", "); got != "00:10:00 00:10:00 25m0s, 00:40:00 00:40:00 20m30s" {
			t.Errorf("told %s", got)
		}
	})
}

// A run that is under way when the lock is lost is ended, and the node that takes
// over begins with the next instant. The old one comes back.
func TestEveryAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		n := &nodes{t: t}
		c := newClient(t, f, lock.WithTTL(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Minute)
		defer cancel()
		time.AfterFunc(12*time.Minute, func() { f.take("job", "other", 10*time.Minute) })
		var first error
		err := lock.Every(ctx, c.Mutex("job"), 10*time.Minute, n.job("x", 5*time.Minute), lock.WithOnRun(func(r lock.Run) {
			if first == nil {
				first = r.Err
				if r.Took > 3*time.Minute {
					t.Errorf("went on for %v", r.Took)
				}
			}
		}))
		wantErr(t, "Every", err, context.DeadlineExceeded)
		wantErr(t, "the run that was ended", first, lock.ErrLost)
		n.want("x 00:10:00", "x 00:30:00", "x 00:40:00")
	})
}

// A node that stops right after its run keeps the lock for the minimum hold, counted
// from that run: so one whose clock is late finds the instant past.
func TestEveryMinimumHold(t *testing.T) {
	for _, c := range []struct {
		stops time.Duration // after the start of the run
		hold  time.Duration // counted from the same instant
		want  time.Duration // when another gets the lock
	}{
		{2 * time.Second, 30 * time.Second, 30 * time.Second},
		{40 * time.Second, 30 * time.Second, 40 * time.Second},
		{2 * time.Second, 0, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			space := memlock.NewSpace()
			n := &nodes{t: t}
			m := newClient(t, space.Backend(), lock.WithMinHold(c.hold)).Mutex("job")
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour+c.stops)
			defer cancel()
			var all sync.WaitGroup
			all.Go(func() { _ = lock.Every(ctx, m, time.Hour, n.job("x", time.Second)) })
			synctest.Wait()
			begin := time.Now()
			l, err := newClient(t, space.Backend()).Mutex("job").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if at := time.Since(begin) - time.Hour; at != c.want {
				t.Errorf("stopped %v after a run, minimum hold %v: free after %v, want %v", c.stops, c.hold, at, c.want)
			}
			_ = l.Unlock(t.Context())
			all.Wait()
			n.want("x 01:00:00")
		})
	}
}

// The minimum hold of a lock of several parts counts in each.
func TestEveryMinimumHoldOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithMinHold(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		n := &nodes{t: t}
		_ = lock.Every(ctx, lock.All(c.Mutex("a"), c.Mutex("b")), time.Hour, n.job("x", 0))
		for _, name := range []string{"a", "b"} {
			if f.holder(name) == "" {
				t.Errorf("%s is free at once", name)
			}
		}
		time.Sleep(59*time.Second + time.Millisecond)
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			if f.holder(name) != "" {
				t.Errorf("%s is still held", name)
			}
		}
	})
}

func TestEveryRefusesWhatCannotWork(t *testing.T) {
	c := newClient(t, newFake())
	never := func(context.Context) error { t.Error("ran"); return nil }
	for name, err := range map[string]error{
		"interval": lock.Every(t.Context(), c.Mutex("k"), 0, never),
		"name":     lock.Every(t.Context(), c.Mutex(""), time.Second, never),
		"backoff":  lock.Every(t.Context(), c.Mutex("k"), time.Second, never, lock.WithBackoff(-1, 0)),
	} {
		wantErr(t, name, err, lock.ErrInvalid)
	}
}

func TestEveryPanicFreesAndGoesOn(t *testing.T) {
	f := newFake()
	c := newClient(t, f)
	defer func() {
		if recover() != "boom" || f.holder("k") != "" {
			t.Errorf("held by %q", f.holder("k"))
		}
	}()
	_ = lock.Every(t.Context(), c.Mutex("k"), time.Millisecond, func(context.Context) error { panic("boom") })
}

// stops is a context whose Err stands for a stop of the process: it takes d, once, at
// an instant.
type stops struct {
	context.Context
	at   time.Time
	d    time.Duration
	done sync.Once
}

func (s *stops) Err() error {
	if !time.Now().Before(s.at) {
		s.done.Do(func() { time.Sleep(s.d) })
	}
	return s.Context.Err()
}

// A process that was stopped when a job was due runs it late, but not when the next
// is due already: whoever held the lock meanwhile may have run it.
func TestEveryAfterAStop(t *testing.T) {
	for stop, want := range map[time.Duration][]string{
		9 * time.Minute:  {"x 00:19:00", "x 00:20:00", "x 00:30:00"},
		14 * time.Minute: {"x 00:30:00"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &nodes{t: t}
			ctx, cancel := context.WithTimeout(t.Context(), 35*time.Minute)
			defer cancel()
			c := newClient(t, memlock.NewSpace().Backend())
			_ = lock.Every(&stops{Context: ctx, at: time.Now().Add(10 * time.Minute), d: stop}, c.Mutex("job"), 10*time.Minute, n.job("x", time.Second))
			n.want(want...)
		})
	}
}

func TestEveryTicks(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.DateTime, "2026-01-02 "+s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct{ now, last, want string }{
		{"10:00:01", "", "10:30:00"},
		{"10:00:00", "", "10:30:00"}, // this very instant is not waited for
		{"10:29:59", "10:00:00", "10:30:00"},
		{"09:59:50", "10:00:00", "10:30:00"}, // a clock that was set back brings no run again
		{"12:10:00", "10:00:00", "12:30:00"}, // what was missed is skipped
	} {
		var last time.Time
		if c.last != "" {
			last = at(c.last)
		}
		if got := lock.NextTick(at(c.now), last, 30*time.Minute, 0); !got.Equal(at(c.want)) {
			t.Errorf("now %s, last %s: %s, want %s", c.now, c.last, clock(got), c.want)
		}
	}
	if got := lock.NextTick(at("03:30:00"), time.Time{}, 24*time.Hour, 3*time.Hour); clock(got) != "03:00:00" || !got.After(at("03:30:00")) {
		t.Errorf("each day at three: %v", got)
	}
	if got := lock.NextTick(at("10:00:00"), time.Time{}, time.Hour, -5*time.Minute); clock(got) != "10:55:00" {
		t.Errorf("five to: %v", got)
	}
}
