// Package renewal sends renewals of many grants in one request while a service is busy.
//
// It knows a backend and its grants, and nothing of leases.
package renewal

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/task"
)

// Wrap returns a backend whose grants renew in batches, or b itself if b is not a
// backend.BatchRenewer. name is that of the driver. Batches are tasks of tasks. A caller of
// Grant.Renew must have begun a task of its own.
func Wrap(b backend.Backend, name string, tasks *task.Group) backend.Backend {
	inner, ok := backend.As[backend.BatchRenewer](b)
	if !ok {
		return b
	}
	w := &wrapper{b, &batcher{renewer: inner, tasks: tasks, name: name}}
	if waiter, ok := backend.As[backend.Waiter](b); ok {
		return &waitingWrapper{w, waiter}
	}
	return w
}

type wrapper struct {
	backend.Backend
	batches *batcher
}

func (w *wrapper) Unwrap() backend.Backend { return w.Backend }

func (w *wrapper) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return w.wrap(w.Backend.TryAcquire(ctx, req))
}

func (w *wrapper) wrap(g backend.Grant, err error) (backend.Grant, error) {
	if err != nil {
		return nil, err
	}
	return &grant{Grant: g, batches: w.batches}, nil
}

// waitingWrapper is the wrapper of a backend that is a Waiter.
type waitingWrapper struct {
	*wrapper
	waiter backend.Waiter
}

func (w *waitingWrapper) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return w.wrap(w.waiter.Acquire(ctx, req))
}

// grant is a grant of the inner backend. Its renewals do not overlap.
type grant struct {
	backend.Grant
	batches *batcher
	single  bool // the last batch failed: the next renewal is sent by itself
}

func (g *grant) Unwrap() backend.Grant { return g.Grant }

// Renew renews the grant by itself or in a batch. ctx must have a deadline. After a batch
// that failed the next renewal is sent by itself: a fault that concerns batches only must
// not cost a lease.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	batched, err := g.batches.renew(ctx, g.Grant, ttl, g.single)
	g.single = batched && err != nil
	return err
}
