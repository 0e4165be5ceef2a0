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

// node is one of several that share the locks of a service.
type node struct {
	gocron.Scheduler
	c *lock.Client
}

// record is what the jobs of a test have done.
type record struct {
	sync.Mutex
	on              []int   // which node each run was on
	running, most   int     // at a time
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
	tell := func(to *[]error) func(uuid.UUID, string, error) {
		return func(_ uuid.UUID, _ string, err error) {
			r.Lock()
			defer r.Unlock()
			*to = append(*to, err)
		}
	}
	return gocron.WithEventListeners(gocron.AfterLockError(tell(&r.skipped)), gocron.AfterJobRunsWithError(tell(&r.failed)))
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

// nodes makes schedulers that end with the test. In a bubble of synctest whoever leaves
// a goroutine behind fails it.
func nodes(t *testing.T, of ...options) []node {
	space, out := memlock.NewSpace(), make([]node, len(of))
	for i, option := range of {
		c, err := lock.New(space.Backend())
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

// schedule runs a task each interval, on a clock that is late by so much.
func (n node) schedule(t *testing.T, late time.Duration, task gocron.Task, options ...gocron.JobOption) {
	t.Helper()
	first := gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(interval + late)))
	_, err := n.NewJob(gocron.DurationJob(interval), task, append(options, gocron.WithName("report"), first)...)
	must(t, err)
	n.Start()
}

// Two schedulers run each job once, though one is late and the job is over before it
// begins.
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

// The same without a minimum hold: the node that is late runs the job again. So what
// the test above sees is the locker's doing.
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

// A run that lasts excludes others on the same node and on another. The end of its lock
// ends it before another begins, and so does the end of its scheduler.
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

// A task under another name than its job's would run beside others: it fails instead.
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

// What can never be locked is told as the reason for skipping.
func TestLockerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, plain)[0]
		for _, l := range []*gocronlock.Locker{gocronlock.NewLocker(n.c.Mutex, -1), gocronlock.NewLocker(n.c.Mutex, 0)} {
			if _, err := l.Lock(t.Context(), strings.Repeat("x", 1025)); !errors.Is(err, lock.ErrInvalid) {
				t.Fatal(err)
			}
		}
	})
}

// One node of two leads and runs all jobs. A leader that stops or loses the leadership
// has ended its job before the other's begins.
func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		var electors []*gocronlock.Elector
		elected := func(c *lock.Client) gocron.SchedulerOption {
			electors = append(electors, gocronlock.NewElector(c.Mutex("leader")))
			return gocron.WithDistributedElector(electors[len(electors)-1])
		}
		all := nodes(t, elected, elected)
		t.Cleanup(func() { r.after(time.Minute) }) // gocron's Shutdown spins, so in a bubble no job may sleep then
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
		if err := <-ended[0]; !errors.Is(err, context.Canceled) {
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
		if err := <-ended[1]; !errors.Is(err, context.Canceled) {
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
