package gocronlock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/interlock-go/lock"
)

// ErrNotLeader is why a node that is not the leader skips a job.
var ErrNotLeader = errors.New("gocronlock: not the leader")

// Elector is a gocron.Elector: the node that holds a lock is the leader.
type Elector struct {
	m lock.Mutex

	mu    sync.Mutex
	term  context.Context // of this node's leadership, nil before it and after
	tasks sync.WaitGroup  // that run in the term
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector that leads while it holds m. It does so only while Run
// runs.
func NewElector(m lock.Mutex) *Elector { return &Elector{m: m} }

// Run campaigns until ctx ends, as lock.Campaign, and returns its error. When the
// leadership ends it waits for the tasks that were made by Task, so that another node
// leads only when they are over, or when the lock was lost.
func (e *Elector) Run(ctx context.Context, opts ...lock.CampaignOption) error {
	return lock.Campaign(ctx, e.m, func(term context.Context) error {
		e.mu.Lock()
		e.term = term
		e.mu.Unlock()
		<-term.Done()
		e.mu.Lock()
		e.term = nil // nobody enters any more
		e.mu.Unlock()
		e.tasks.Wait()
		return nil
	}, opts...)
}

// IsLeader returns nil while this node leads, and ErrNotLeader otherwise. It does not
// ask the backend.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil {
		return ErrNotLeader
	}
	return nil
}

// Task returns a task whose context ends when gocron ends it or when the leadership
// ends: with the cause lock.ErrLost if it was lost.
func (e *Elector) Task(fn func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		term, err := e.enter()
		if err != nil {
			return err
		}
		defer e.tasks.Done()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(term, func() { cancel(context.Cause(term)) })()
		return fn(ctx)
	})
}

// enter notes a task in the term, unless that is over since IsLeader was asked.
func (e *Elector) enter() (term context.Context, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil {
		return nil, ErrNotLeader
	}
	e.tasks.Add(1)
	return e.term, nil
}
