// Package engine acquires, renews and releases grants of one backend. It applies the
// rule of package trust and cleans up after requests whose outcome is not known.
//
// A heldGrant is a grant from the reply of the backend until it is released, lost or
// closed. It has one or more leases: reentry adds leases. A held grant has one timer and,
// while nothing is due, no goroutine.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/cleanup"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/task"
)

// ErrReleased is the cause of a lease that was released.
var ErrReleased = errors.New("lock released")

// Config is what an Engine needs.
type Config struct {
	Backend backend.Backend
	Caps    backend.Capabilities // of Backend; MaxTTL is set
	Cleaner *cleanup.Cleaner
	Report  func(ctx context.Context, e Event)  // nil: nothing is reported; called without locks held
	Outage  func(Outage)                        // nil: nothing is reported; called without locks held
	EndErr  func(key string, cause error) error // makes the error of a lease that has ended
}

// Engine has the grants of one client. It is safe for concurrent use.
type Engine struct {
	cfg    Config
	caps   backend.Capabilities
	waiter backend.Waiter // nil if the backend has no queue
	tasks  *task.Group

	queuesRenewals bool // the backend renews in batches

	outages outages

	mu     sync.Mutex // guards the fields below
	closed bool
	held   map[*heldGrant]struct{}
}

// New returns an engine. It closes cfg.Backend when it is closed.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, caps: cfg.Caps, tasks: cfg.Cleaner.Tasks,
		outages: outages{report: cfg.Outage}, held: map[*heldGrant]struct{}{},
	}
	e.waiter, _ = backend.As[backend.Waiter](cfg.Backend)
	_, e.queuesRenewals = backend.As[backend.BatchRenewer](cfg.Backend)
	return e
}

// Params are what a Mutex asks for.
type Params struct {
	Key, Metadata string
	Share         backend.Share
	TTL, MinHold  time.Duration
	Wait          time.Duration // the wait limit, zero for none
	Fixed         bool          // no renewal
	Reentrant     bool
}

// Mutex acquires grants of one key. It is safe for concurrent use.
type Mutex struct {
	engine  *Engine
	params  Params
	heldKey any // the heldKey of the key
}

// Mutex returns the mutex of p.
func (e *Engine) Mutex(p Params) *Mutex { return &Mutex{e, p, heldKey{e, p.Key}} }

// register adds h to the held grants. It returns false if the engine is closed.
func (e *Engine) register(h *heldGrant) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.held[h] = struct{}{}
	return true
}

func (e *Engine) unregister(h *heldGrant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.held, h)
}

// runTimeout bounds Run if its context has no deadline.
const runTimeout = 10 * time.Second

// Run calls f, which asks the backend about locks, unless the engine is closed. Closing
// ends the context of f.
func (e *Engine) Run(ctx context.Context, f func(context.Context) error) error {
	caller := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, runTimeout)
		defer cancel()
	}
	return retry.OwnTimeout(caller, e.RunUnbounded(ctx, f))
}

// RunUnbounded is Run without a bound.
func (e *Engine) RunUnbounded(ctx context.Context, f func(context.Context) error) error {
	var wait task.Wait
	if !e.tasks.BeginWait(ctx, &wait) {
		return backend.ErrClosed
	}
	defer wait.Done()
	if ctx.Err() != nil {
		return retry.ContextError(ctx)
	}
	err := f(&wait.Context)
	if err != nil && e.tasks.Closing().Err() != nil && ctx.Err() == nil {
		return closedError(err)
	}
	return retry.WithContext(ctx, err)
}

// closedError returns the error of a request that closing ended.
func closedError(err error) error {
	if errors.Is(err, backend.ErrUncertain) {
		return fmt.Errorf("%w: %w", backend.ErrClosed, backend.ErrUncertain)
	}
	return backend.ErrClosed
}
