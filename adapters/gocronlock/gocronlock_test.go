package gocronlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/gocronlock"
	"github.com/interlock-go/lock/memlock"
)

// node is one of several nodes that share a lock service.
type node struct {
	gocron.Scheduler
	c *lock.Client
}

// record has the runs of the jobs of a test.
type record struct {
	sync.Mutex
	on              []int   // which node each run was on
	running, most   int     // runs at a time
	causes          []error // why the runs' contexts ended
	skipped, failed []error
}

// job runs until its context ends, and for a while after that.
func (r *record) job(node int, after time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		r.Lock()
		r.on = append(r.on, node)
		r.running++
		r.most = max(r.most, r.running)
		r.Unlock()
		<-ctx.Done()
		time.Sleep(after)
		r.Lock()
		defer r.Unlock()
		r.running--
		r.causes = append(r.causes, context.Cause(ctx))
		return nil
	}
}

func (r *record) listeners() gocron.JobOption {
	appendTo := func(to *[]error) func(uuid.UUID, string, error) {
		return func(_ uuid.UUID, _ string, err error) {
			r.Lock()
			defer r.Unlock()
			*to = append(*to, err)
		}
	}
	return gocron.WithEventListeners(gocron.AfterLockError(appendTo(&r.skipped)), gocron.AfterJobRunsWithError(appendTo(&r.failed)))
}

// after waits, and until all is quiet.
func (r *record) after(d time.Duration) *record {
	time.Sleep(d)
	synctest.Wait()
	r.Lock()
	defer r.Unlock()
	return &record{on: r.on, running: r.running, most: r.most, causes: r.causes, skipped: r.skipped, failed: r.failed}
}

type options func(c *lock.Client) gocron.SchedulerOption

const (
	interval = time.Minute
	splay    = 5 * time.Second
)

// nodes starts schedulers that end with the test. In a bubble of synctest a goroutine that
// is left behind fails the test.
func nodes(t *testing.T, of ...options) []node {
	space, out := memlock.NewSpace(), make([]node, len(of))
	for i, option := range of {
		c, err := lock.New(space.Backend(), lock.WithLogger(nil))
		must(t, err)
		s, err := gocron.NewScheduler(option(c))
		must(t, err)
		out[i] = node{s, c}
		t.Cleanup(func() {
			must(t, s.Shutdown())
			must(t, c.Close(context.Background()))
		})
	}
	return out
}

func plain(*lock.Client) gocron.SchedulerOption { return gocron.WithStopTimeout(10 * time.Second) }

// schedule runs a task in each interval, on a clock that is late by a given time.
func (n node) schedule(t *testing.T, late time.Duration, task gocron.Task, options ...gocron.JobOption) {
	t.Helper()
	first := gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(interval + late)))
	_, err := n.NewJob(gocron.DurationJob(interval), task, append(options, gocron.WithName("report"), first)...)
	must(t, err)
	n.Start()
}

// Two schedulers run each job once, even if the clock of one is late and the job ends
// before that one begins.
func TestLockerRunsEachJobOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		runs := make(chan int, 100)
		for i, n := range nodes(t, plain, plain) {
			l := gocronlock.NewLocker(n.c.Mutex, splay)
			n.schedule(t, time.Duration(i)*splay/2, l.Task("report", func(context.Context) error { runs <- i; return nil }),
				gocron.WithDistributedJobLocker(l), r.listeners())
		}
		now := r.after(10*interval + interval/2)
		if len(runs) != 10 || len(now.skipped) != 10 || len(now.failed) != 0 {
			t.Fatalf("%d runs, skipped %v, failed %v", len(runs), now.skipped, now.failed)
		}
		for _, err := range now.skipped {
			if !errors.Is(err, lock.ErrLocked) {
				t.Fatal(err)
			}
		}
	})
}

// Without a minimum hold the late node runs the job again, so TestLockerRunsEachJobOnce
// tests the minimum hold.
func TestLockerWithoutSplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := make(chan int, 100)
		locked := func(c *lock.Client) gocron.SchedulerOption {
			return gocron.WithDistributedLocker(gocronlock.NewLocker(c.Mutex, 0))
		}
		for i, n := range nodes(t, locked, locked) {
			n.schedule(t, time.Duration(i)*splay/2, gocron.NewTask(func() { runs <- i }))
		}
		time.Sleep(10*interval + interval/2)
		synctest.Wait()
		if len(runs) != 20 {
			t.Fatalf("%d runs", len(runs))
		}
	})
}

// A long run excludes other runs on the same node and on another. The loss of its lock
// ends it before another run begins, and so does the end of its scheduler.
func TestLockerLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		all := nodes(t, plain, plain)
		for i, n := range all {
			l := gocronlock.NewLocker(n.c.Mutex, splay)
			n.schedule(t, time.Duration(i)*splay, l.Task("report", r.job(i, 0)), gocron.WithDistributedJobLocker(l), r.listeners())
		}
		if now := r.after(3*interval + interval/2); len(now.on) != 1 {
			t.Fatalf("%d runs in the time of one", len(now.on))
		}
		_, err := all[1].c.Break(t.Context(), "gocron/report")
		must(t, err)
		now := r.after(0)
		if now.running != 0 || len(now.causes) != 1 || !errors.Is(now.causes[0], lock.ErrLost) || len(now.failed) != 1 || !errors.Is(now.failed[0], lock.ErrLost) {
			t.Fatalf("%d run, causes %v, failed %v", now.running, now.causes, now.failed)
		}
		if now := r.after(interval); now.running != 1 || now.most != 1 {
			t.Fatalf("%d run, %d at most", now.running, now.most)
		}
		for _, n := range all {
			must(t, n.StopJobs())
		}
		if now := r.after(0); now.running != 0 || !errors.Is(now.causes[1], context.Canceled) {
			t.Fatalf("%d run, causes %v", now.running, now.causes)
		}
	})
}

// A task whose name differs from that of its job fails: it would run without a lock.
func TestLockerTaskOfAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		n := nodes(t, plain)[0]
		l := gocronlock.NewLocker(n.c.Mutex, splay)
		n.schedule(t, 0, l.Task("other", r.job(0, 0)), gocron.WithDistributedJobLocker(l), r.listeners())
		now := r.after(interval + interval/2)
		if len(now.on) != 0 || len(now.failed) != 1 || !strings.Contains(now.failed[0].Error(), `"other" runs without its lock`) {
			t.Fatal(now.on, now.failed)
		}
		if info, err := n.c.Inspect(t.Context(), "gocron/report"); err != nil || info.Holder != nil {
			t.Fatal("the lock stays", info, err)
		}
	})
}

// The error of an invalid lock is the reason for skipping the run.
func TestLockerInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, plain)[0]
		for _, l := range []*gocronlock.Locker{gocronlock.NewLocker(n.c.Mutex, -1), gocronlock.NewLocker(n.c.Mutex, 0)} {
			if _, err := l.Lock(t.Context(), strings.Repeat("x", 1025)); !errors.Is(err, lock.ErrInvalid) {
				t.Fatal(err)
			}
		}
	})
}

// One of two nodes leads and runs all jobs. If the leader stops or loses the leadership,
// its job ends before that of the other node begins.
func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		var electors []*gocronlock.Elector
		elected := func(c *lock.Client) gocron.SchedulerOption {
			electors = append(electors, gocronlock.NewElector(c.Mutex("leader")))
			return gocron.WithDistributedElector(electors[len(electors)-1])
		}
		all := nodes(t, elected, elected)
		t.Cleanup(func() { r.after(time.Minute) }) // gocron's Shutdown spins, so no job may sleep in a bubble then
		ended := make([]chan error, len(all))
		stop := make([]context.CancelFunc, len(all))
		for i, n := range all {
			e := electors[i]
			if err := e.IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrNotLeader) {
				t.Fatal("leads before Run:", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended[i], stop[i] = make(chan error, 1), cancel
			go func() { ended[i] <- e.Run(ctx) }()
			synctest.Wait()
			n.schedule(t, 0, e.Task(r.job(i, time.Second)), gocron.WithSingletonMode(gocron.LimitModeReschedule))
		}
		if now := r.after(3*interval + interval/2); len(now.on) != 1 || now.on[0] != 0 {
			t.Fatalf("ran on %v, want the first only", now.on)
		}
		stop[0]()
		now := r.after(0)
		if info, err := all[1].c.Inspect(t.Context(), "leader"); err != nil || info.Holder == nil || len(info.Waiters) != 1 || now.running != 1 {
			t.Fatal("want the lock held while the task still runs:", info, err, now.running)
		}
		if err := <-ended[0]; err != nil {
			t.Fatal(err)
		}
		now = r.after(interval)
		if len(now.on) != 2 || now.on[1] != 1 || now.most != 1 || !errors.Is(now.causes[0], context.Canceled) {
			t.Fatalf("ran on %v, %d at a time, causes %v", now.on, now.most, now.causes)
		}
		_, err := all[0].c.Break(t.Context(), "leader")
		must(t, err)
		now = r.after(2 * interval)
		if len(now.on) != 3 || now.most != 1 || !errors.Is(now.causes[1], lock.ErrLost) {
			t.Fatalf("ran on %v, %d at a time, causes %v", now.on, now.most, now.causes)
		}
		stop[1]()
		if err := <-ended[1]; err != nil {
			t.Fatal(err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
