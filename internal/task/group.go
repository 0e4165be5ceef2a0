// Package task counts the work in progress of one client, so that closing the client can
// wait for it and then end it.
package task

import (
	"context"
	"sync"
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
	stopped bool
	active  int
}

// New returns an empty group.
func New() *Group {
	g := &Group{idle: make(chan struct{})}
	g.closing, g.stop = context.WithCancelCause(context.Background())
	g.working, g.kill = context.WithCancel(context.Background())
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
	if g.stopped {
		return false
	}
	g.active++
	return true
}

// BeginCleanup adds a task that closing waits for. It returns false only when the group
// is idle after Stop.
func (g *Group) BeginCleanup() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped && g.active == 0 {
		return false
	}
	g.active++
	return true
}

// Done removes a task.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active--
	if g.stopped && g.active == 0 {
		close(g.idle)
	}
}

// Stop refuses new tasks and ends Closing with cause. The caller counts as a task until it
// calls Done, so that its own cleanup can begin. Stop must be called once.
func (g *Group) Stop(cause error) {
	g.mu.Lock()
	g.stopped = true
	g.active++
	g.mu.Unlock()
	g.stop(cause)
}

// Kill ends Working.
func (g *Group) Kill() { g.kill() }

// Idle is closed when no task is left after Stop.
func (g *Group) Idle() <-chan struct{} { return g.idle }
