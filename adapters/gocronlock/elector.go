package gocronlock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
)

// ErrNotLeader is the error for a job of a node that is not the leader; gocron skips it.
var ErrNotLeader = errors.New("gocronlock: not the leader")

// Elector is a gocron.Elector: the node that holds a lock is the leader.
type Elector struct {
	m lock.Mutex

	mu    sync.Mutex
	term  context.Context // nil while this node is not the leader
	tasks sync.WaitGroup  // tasks of the term that run
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector that leads while Run runs and holds m.
func NewElector(m lock.Mutex) *Elector { return &Elector{m: m} }

// Run calls elect.Campaign, which campaigns until ctx ends, and returns its error. When
// the leadership ends, Run waits for the tasks made by Task before it releases the lock,
// so that another node leads only after them, or after the lock was lost.
func (e *Elector) Run(ctx context.Context, opts ...elect.Option) error {
	return elect.Campaign(ctx, e.m, func(term context.Context) error {
		e.mu.Lock()
		e.term = term
		e.mu.Unlock()
		<-term.Done()
		e.mu.Lock()
		e.term = nil // no task begins from here on
		e.mu.Unlock()
		e.tasks.Wait()
		return nil
	}, opts...)
}

// IsLeader returns nil if this node leads, and ErrNotLeader otherwise. It does not ask
// the backend.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil {
		return ErrNotLeader
	}
	return nil
}

// Task returns a task that calls fn with a context that ends when gocron ends it or when
// the leadership ends. The cause is lock.ErrLost if the lock was lost.
func (e *Elector) Task(fn func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		term, err := e.beginTask()
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

// beginTask adds a task to the term, which may have ended since IsLeader.
func (e *Elector) beginTask() (term context.Context, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil {
		return nil, ErrNotLeader
	}
	e.tasks.Add(1)
	return e.term, nil
}
