// Package gocronlock lets schedulers of github.com/go-co-op/gocron on several nodes run
// each job once, with a lock of github.com/interlock-go/lock.
//
// With [Locker] each run of a job has a lock, and any node may run it. With [Elector] one
// node is the leader and runs all jobs. If the job is made by the method Task of either,
// its context ends when the lock is lost, before another node can run the job.
package gocronlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/interlock-go/lock"
)

// Locker is a gocron.Locker. If a run does not get its lock at once, another node runs the
// job and gocron skips the run.
type Locker struct {
	mutex func(name string, opts ...lock.MutexOption) lock.Mutex
	splay time.Duration

	mu      sync.Mutex
	granted map[string]*lock.Lease // by job: the lease of the last run, until its task begins
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a locker with the locks mutex("gocron/" + name of the job); mutex is
// usually the method Mutex of a lock.Client. splay is the minimum hold: a shorter job
// keeps its lock until splay after its start, so that a node whose clock is late does not
// run it again. splay must be longer than the difference between clocks, and shorter than
// the interval of each job, because the node itself waits for it, too.
//
// A mutex that is a permit of a lock.Semaphore limits how many jobs run at a time over all
// nodes; gocron skips a run that gets no permit.
func NewLocker(mutex func(name string, opts ...lock.MutexOption) lock.Mutex, splay time.Duration) *Locker {
	return &Locker{mutex: mutex, splay: splay, granted: map[string]*lock.Lease{}}
}

// Lock makes one attempt to lock a job. gocron calls it before each run.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.mutex("gocron/"+job, lock.WithMinHold(l.splay)).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted[job] = lease
	return run{l, job, lease}, nil
}

// run is the gocron.Lock of one run.
type run struct {
	l     *Locker
	job   string
	lease *lock.Lease
}

// Unlock releases the lock. gocron calls it after the run.
func (r run) Unlock(ctx context.Context) error {
	r.l.removeGranted(r.job, r.lease)
	return r.lease.Unlock(ctx)
}

// removeGranted removes and returns the lease of a job whose task has not begun. If only
// is not nil, removeGranted removes no other lease.
func (l *Locker) removeGranted(job string, only *lock.Lease) *lock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.granted[job]
	if only != nil && lease != only {
		return nil
	}
	delete(l.granted, job)
	return lease
}

// Task returns a task that calls fn, for the job with the same gocron.WithName. The
// context of fn ends when gocron ends it, and with the cause lock.ErrLost when the lock of
// the run is lost; the run then fails with an error that matches lock.ErrLost, whatever fn
// returns. If gocron runs the task without the lock, the task fails and fn is not called.
func (l *Locker) Task(job string, fn func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		lease := l.removeGranted(job, nil)
		if lease == nil {
			return fmt.Errorf("gocronlock: job %q runs without its lock: want gocron.WithName(%q) and this locker", job, job)
		}
		return lock.Do(ctx, granted{lease}, fn)
	})
}

// granted is a Mutex that returns a lease that was granted before.
type granted struct{ lease *lock.Lease }

func (g granted) Name() string                                 { return g.lease.Name() }
func (g granted) Lock(context.Context) (*lock.Lease, error)    { return g.lease, nil }
func (g granted) TryLock(context.Context) (*lock.Lease, error) { return g.lease, nil }
