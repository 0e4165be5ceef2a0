// Package task counts the work in progress of one client, so that closing the client can
// wait for it and then end it.
package task

import (
	"context"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend/call"
)

// Group is the work in progress of one client. It is safe for concurrent use.
//
// Closing a client has these steps: Stop refuses new tasks and ends Closing, the caller
// frees what is held and calls Done, Idle is closed when no task is left, and Kill ends
// Working for tasks that take too long.
type Group struct {
	closing context.Context
	stop    context.CancelCauseFunc
	working context.Context
	kill    context.CancelFunc
	idle    chan struct{}

	mu      sync.Mutex // guards the fields below
	stopped error      // the cause; nil before Stop
	active  int
	waits   Wait // of a ring
}

// Wait is a task whose context ends when closing begins.
type Wait struct {
	Context    call.Context // ends with that of the caller, with Stop and with Done
	group      *Group
	prev, next *Wait
}

// New returns an empty group.
func New() *Group {
	g := &Group{idle: make(chan struct{})}
	g.closing, g.stop = context.WithCancelCause(context.Background())
	g.working, g.kill = context.WithCancel(context.Background())
	g.waits.prev, g.waits.next = &g.waits, &g.waits
	return g
}

// Closing returns a context that ends when Stop is called, with its cause.
func (g *Group) Closing() context.Context { return g.closing }

// Working returns a context that ends when Kill is called: that of requests which closing
// waits for.
func (g *Group) Working() context.Context { return g.working }

// Begin adds a task. It returns false after Stop.
func (g *Group) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped != nil {
		return false
	}
	g.active++
	return true
}

// BeginWait adds w, whose context ends with ctx and when closing begins. It returns false
// after Stop. The caller must call Done of w, not of the group. A group may have
// thousands of them, so it has a list of its own: context.AfterFunc would cost each of them
// two changes of a map and three allocations.
func (g *Group) BeginWait(ctx context.Context, w *Wait) bool {
	w.group = g
	w.Context.Init(ctx, ctx, time.Time{})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped != nil {
		return false
	}
	g.active++
	w.prev, w.next = g.waits.prev, &g.waits
	w.prev.next, w.next.prev = w, w
	return true
}

// Done removes the task and ends its context.
func (w *Wait) Done() {
	w.Context.End(context.Canceled)
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	w.prev.next, w.next.prev = w.next, w.prev
	w.group.doneLocked()
}

// BeginCleanup adds a task that closing waits for. It returns false only when the group
// is idle after Stop.
func (g *Group) BeginCleanup() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped != nil && g.active == 0 {
		return false
	}
	g.active++
	return true
}

// Done removes a task.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doneLocked()
}

func (g *Group) doneLocked() {
	g.active--
	if g.stopped != nil && g.active == 0 {
		close(g.idle)
	}
}

// Stop refuses new tasks and ends Closing with cause. The caller counts as a task until it
// calls Done, so that its own cleanup can begin. Stop must be called once.
func (g *Group) Stop(cause error) {
	g.mu.Lock()
	g.stopped = cause
	g.active++
	var waits []*Wait
	for w := g.waits.next; w != &g.waits; w = w.next {
		waits = append(waits, w)
	}
	g.mu.Unlock()
	g.stop(cause)
	for _, w := range waits {
		w.Context.End(context.Canceled)
	}
}

// Kill ends Working.
func (g *Group) Kill() { g.kill() }

// Idle is closed when no task is left after Stop.
func (g *Group) Idle() <-chan struct{} { return g.idle }
