// Package gocronlock makes schedulers of github.com/go-co-op/gocron on several nodes run
// each job once, on any backend of github.com/interlock-go/lock.
//
// [Locker] takes a lock for each run of a job: any node may run it. [Elector] makes one
// node the leader, which runs all jobs. Either hands the job a context that ends when
// the lock is lost, before another node can run it, if the job is made by its Task.
package gocronlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/interlock-go/lock"
)

// Locker is a gocron.Locker. A run that does not get its lock at once is skipped, by
// gocron: somebody else runs it.
type Locker struct {
	mutex func(name string, opts ...lock.MutexOption) lock.Mutex
	splay time.Duration

	mu      sync.Mutex
	granted map[string]*lock.Lease // by job: of the latest run, until its task takes it
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a locker whose locks are mutex("gocron/" + the job's name); mutex is
// usually a client's Mutex. splay is the minimum hold: a job that is over sooner keeps
// its lock for so long after its start, so that a node whose clock is late does not run
// it again. It has to be more than the clocks differ, and less than the interval of any
// job, for the node itself waits for it too.
func NewLocker(mutex func(name string, opts ...lock.MutexOption) lock.Mutex, splay time.Duration) *Locker {
	return &Locker{mutex: mutex, splay: splay, granted: map[string]*lock.Lease{}}
}

// Lock makes one attempt to get the lock of a job, for gocron.
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

// run is the lock of one run.
type run struct {
	l     *Locker
	job   string
	lease *lock.Lease
}

// Unlock ends the run.
func (r run) Unlock(ctx context.Context) error {
	r.l.take(r.job, func(granted *lock.Lease) bool { return granted == r.lease })
	return r.lease.Unlock(ctx)
}

// take removes the lease of a job that no task has taken, if it is the right one.
func (l *Locker) take(job string, right func(*lock.Lease) bool) *lock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.granted[job]
	if lease == nil || !right(lease) {
		return nil
	}
	delete(l.granted, job)
	return lease
}

// Task returns a task for the job that is given the same name by gocron.WithName. Its
// context ends when gocron ends it or, with the cause lock.ErrLost, when the run's lock
// is lost. The run then fails with an error that matches lock.ErrLost, whatever fn
// returned. A task that gocron runs without the lock fails, and fn is not called.
func (l *Locker) Task(job string, fn func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		lease := l.take(job, func(*lock.Lease) bool { return true })
		if lease == nil {
			return fmt.Errorf("gocronlock: job %q runs without its lock: want gocron.WithName(%q) and this locker", job, job)
		}
		return lock.Do(ctx, granted{lease}, fn)
	})
}

// granted is a lock that has been granted.
type granted struct{ lease *lock.Lease }

func (g granted) Name() string                                 { return g.lease.Name() }
func (g granted) Lock(context.Context) (*lock.Lease, error)    { return g.lease, nil }
func (g granted) TryLock(context.Context) (*lock.Lease, error) { return g.lease, nil }
