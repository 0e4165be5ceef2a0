package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/elect"
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/schedule"
)

var (
	newClient = clienttest.NewClient
	wantErr   = clienttest.WantErr
)

// clock formats t. The time of a synctest bubble begins at midnight.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// nodes records when a job ran on which node.
type nodes struct {
	t    *testing.T
	mu   sync.Mutex
	runs []string
	now  int // runs that have not ended
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

// One node runs the job until it stops; then another takes over.
func TestEveryTakeover(t *testing.T) {
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
				err := schedule.Every(ctx, m, 10*time.Minute, n.job(name, time.Minute), schedule.WithOffset(5*time.Minute))
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

// Due times that pass during a long run are skipped.
func TestEverySkipsMissedTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{t: t}
		c := newClient(t, memlock.NewSpace().Backend())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+30*time.Second)
		defer cancel()
		var runs []string
		err := schedule.Every(ctx, c.Mutex("job"), 10*time.Minute, n.job("x", 25*time.Minute), schedule.WithOnRun(func(r schedule.Run) {
			runs = append(runs, fmt.Sprintf("%s %s %v", clock(r.Tick), clock(r.Start), r.Took))
			if len(runs) < 2 && r.Err != nil || len(runs) == 2 && !errors.Is(r.Err, context.DeadlineExceeded) {
				t.Errorf("run %d: %v", len(runs), r.Err)
			}
		}))
		wantErr(t, "Every", err, context.DeadlineExceeded)
		n.want("x 00:10:00", "x 00:40:00")
		if got := strings.Join(runs, ", "); got != "00:10:00 00:10:00 25m0s, 00:40:00 00:40:00 20m30s" {
			t.Errorf("runs %s", got)
		}
	})
}

// The loss of the lock ends the context of the run. The node campaigns again and
// continues with the next due time.
func TestEveryAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		n := &nodes{t: t}
		c := newClient(t, space.Backend(), lock.WithTTL(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Minute)
		defer cancel()
		other := newClient(t, space.Backend(), lock.WithTTL(10*time.Minute), lock.WithoutRenewal())
		time.AfterFunc(12*time.Minute, func() {
			if _, err := other.Break(ctx, "job"); err != nil {
				t.Error(err)
			}
			if _, err := other.Mutex("job").TryLock(ctx); err != nil {
				t.Error(err)
			}
		})
		var first error
		err := schedule.Every(ctx, c.Mutex("job"), 10*time.Minute, n.job("x", 5*time.Minute), schedule.WithOnRun(func(r schedule.Run) {
			if first == nil {
				first = r.Err
				if r.Took > 3*time.Minute {
					t.Errorf("the run continued for %v", r.Took)
				}
			}
		}))
		wantErr(t, "Every", err, context.DeadlineExceeded)
		wantErr(t, "the run that was ended", first, lock.ErrLost)
		n.want("x 00:10:00", "x 00:30:00", "x 00:40:00")
	})
}

// A node that stops right after a run keeps the lock for the minimum hold, counted from
// the start of the run.
func TestEveryMinimumHold(t *testing.T) {
	for _, c := range []struct {
		stops time.Duration // after the start of the run
		hold  time.Duration // counted from the same instant
		want  time.Duration // when another node gets the lock
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
			all.Go(func() { _ = schedule.Every(ctx, m, time.Hour, n.job("x", time.Second)) })
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

// The minimum hold of lock.All restarts in each part.
func TestEveryMinimumHoldOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memlock.New(), lock.WithMinHold(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		n := &nodes{t: t}
		_ = schedule.Every(ctx, lock.All(c.Mutex("a"), c.Mutex("b")), time.Hour, n.job("x", 0))
		for _, name := range []string{"a", "b"} {
			if !held(t, c, name) {
				t.Errorf("%s was released at once", name)
			}
		}
		time.Sleep(59*time.Second + time.Millisecond)
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			if held(t, c, name) {
				t.Errorf("%s is still held", name)
			}
		}
	})
}

func TestEveryGivesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memlock.New())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_ = schedule.Every(ctx, c.Mutex("k"), time.Hour, func(ctx context.Context) error {
			if l := lock.FromContext(ctx); l == nil || l.Name() != "k" || l.Err() != nil {
				t.Errorf("the lease of a run: %v", l)
			}
			cancel()
			return nil
		})
		if ctx.Err() == nil {
			t.Error("the job did not run")
		}
	})
}

func TestEveryInvalid(t *testing.T) {
	c := newClient(t, memlock.New())
	never := func(context.Context) error { t.Error("ran"); return nil }
	for name, err := range map[string]error{
		"interval": schedule.Every(t.Context(), c.Mutex("k"), 0, never),
		"name":     schedule.Every(t.Context(), c.Mutex(""), time.Second, never),
		"backoff":  schedule.Every(t.Context(), c.Mutex("k"), time.Second, never, schedule.WithCampaign(elect.WithBackoff(-1, 0))),
	} {
		wantErr(t, name, err, lock.ErrInvalid)
	}
}

func TestEveryPanicReleases(t *testing.T) {
	c := newClient(t, memlock.New())
	defer func() {
		if recover() != "boom" || held(t, c, "k") {
			t.Error("the panic was swallowed, or the lock is still held")
		}
	}()
	_ = schedule.Every(t.Context(), c.Mutex("k"), time.Millisecond, func(context.Context) error { panic("boom") })
}

// stops is a context that simulates a stopped process: from the instant at, its first
// Err takes d.
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

// A process that was stopped when the job was due runs it late, unless the job is due
// again already: another holder may have run it meanwhile.
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
			_ = schedule.Every(&stops{Context: ctx, at: time.Now().Add(10 * time.Minute), d: stop}, c.Mutex("job"), 10*time.Minute, n.job("x", time.Second))
			n.want(want...)
		})
	}
}

// silent is a backend that does not push a loss.
type silent struct{ *memlock.Backend }

func (s silent) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	req.OnLost = nil
	return s.Backend.Acquire(ctx, req)
}

// A late run asks the backend whether the lock is still held.
func TestEveryChecksTheLeaseOfALateRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{t: t}
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
		defer cancel()
		c := newClient(t, silent{memlock.New()}, lock.WithTTL(time.Hour))
		time.AfterFunc(12*time.Minute, func() {
			if _, err := c.Break(context.Background(), "job"); err != nil {
				t.Error(err)
			}
		})
		_ = schedule.Every(&stops{Context: ctx, at: time.Now().Add(10 * time.Minute), d: 9 * time.Minute}, c.Mutex("job"), 10*time.Minute, n.job("x", time.Second))
		n.want("x 00:20:00")
	})
}

func held(t *testing.T, c *lock.Client, name string) bool {
	t.Helper()
	info, err := c.Inspect(context.Background(), name)
	if err != nil {
		t.Error(err)
	}
	return info.Holder != nil
}

// The sum of two intervals of more than 146 years is no Duration.
func TestEveryWithALongInterval(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, interval := range []time.Duration{100 * year, 150 * year, math.MaxInt64 - time.Hour, math.MaxInt64} {
		for _, offset := range []time.Duration{0, time.Hour, math.MaxInt64, math.MinInt64} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				c := newClient(t, memlock.New())
				err := schedule.Every(ctx, c.Mutex("job"), interval, func(context.Context) error {
					t.Errorf("interval %v, offset %v: the job ran at %v", interval, offset, time.Now())
					return nil
				}, schedule.WithOffset(offset))
				wantErr(t, "Every", err, context.DeadlineExceeded)
				if took := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); took != 3*time.Hour {
					t.Errorf("interval %v, offset %v: Every returned after %v", interval, offset, took)
				}
			})
		}
	}
}

func TestEveryInTheFarFuture(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, interval := range []time.Duration{150 * year, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			due := time.Time{}.Add(interval)
			for !due.After(time.Now()) {
				due = due.Add(interval)
			}
			offset := time.Until(due) // the job is due an hour later
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
			defer cancel()
			runs := 0
			_ = schedule.Every(ctx, newClient(t, memlock.New()).Mutex("job"), interval, func(context.Context) error {
				runs++
				return nil
			}, schedule.WithOffset(time.Hour-offset))
			if runs != 1 {
				t.Errorf("interval %v: want one run, the job ran %d times", interval, runs)
			}
		})
	}
}
