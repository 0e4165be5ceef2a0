// Package lazy opens something in the background until that succeeds.
package lazy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
)

// Pauses between two attempts. An error that repeating does not change, such as a password that
// the service refuses as invalid, may still pass: the service may have been set up in part only.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 500 * time.Millisecond
	finalPause = 5 * time.Second
)

// Opener opens a T in the background. It is safe for concurrent use.
type Opener[T any] struct {
	open   func(context.Context) (*T, error)
	report func(error)
	close  func(*T)

	stop  context.CancelFunc
	done  chan struct{} // closed when the goroutine has ended
	value atomic.Pointer[T]

	mu      sync.Mutex // guards the fields below
	err     error      // of the last attempt; nil before the first has ended
	stopped bool
	changed chan struct{} // closed when an attempt has ended, and then replaced
}

// Start begins to open. report is called once with the error of the first attempt if that fails,
// and then once with nil when an attempt succeeds. close closes what was opened after Stop.
func Start[T any](open func(context.Context) (*T, error), report func(error), close func(*T)) *Opener[T] {
	ctx, stop := context.WithCancel(context.Background()) //nolint:gosec // Stop calls it
	o := &Opener[T]{open: open, report: report, close: close, stop: stop, done: make(chan struct{}), changed: make(chan struct{})}
	go o.run(ctx)
	return o
}

func (o *Opener[T]) run(ctx context.Context) {
	defer close(o.done)
	pause := &retry.Backoff{Next: firstPause, Max: maxPause}
	for failed := false; ; failed = true {
		v, err := o.open(ctx)
		if ctx.Err() != nil {
			if err == nil {
				o.close(v)
			}
			return
		}
		if err == nil {
			switch {
			case !o.publish(v):
				o.close(v)
			case failed:
				o.report(nil)
			}
			return
		}
		err = retry.OwnTimeout(ctx, retry.Known(err, ""))
		if !failed {
			o.report(err)
		}
		o.note(err)
		next := pause
		if !retry.Transient(err) {
			next = &retry.Backoff{Next: finalPause, Max: finalPause}
		}
		if !next.Wait(ctx) {
			return
		}
	}
}

// publish sets the value. It returns false after Stop.
func (o *Opener[T]) publish(v *T) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false
	}
	o.value.Store(v)
	close(o.changed)
	return true
}

// note sets the error of an attempt.
func (o *Opener[T]) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.stopped {
		o.err = err
		close(o.changed)
		o.changed = make(chan struct{})
	}
}

// Value returns what was opened, or nil.
func (o *Opener[T]) Value() *T { return o.value.Load() }

// Wait waits until the T is open. It returns the error of an attempt that repeating does not
// change, ErrClosed after Stop, and if ctx ends, the error of ctx joined with that of the last
// attempt.
func (o *Opener[T]) Wait(ctx context.Context) (*T, error) {
	return o.await(ctx, func(err error) bool { return !retry.Transient(err) })
}

// Try is Wait, but returns also the error of the last attempt. It waits only for the first.
func (o *Opener[T]) Try(ctx context.Context) (*T, error) {
	return o.await(ctx, func(error) bool { return true })
}

// await waits until the T is open, or an attempt fails with an error that is final.
func (o *Opener[T]) await(ctx context.Context, final func(error) bool) (*T, error) {
	for {
		if v := o.value.Load(); v != nil {
			return v, nil
		}
		o.mu.Lock()
		err, changed, stopped := o.err, o.changed, o.stopped
		o.mu.Unlock()
		if err != nil {
			err = backend.NotExecuted(fmt.Errorf("not open yet: %w", err))
		}
		switch {
		case stopped:
			return nil, backend.ErrClosed
		case ctx.Err() != nil && err == nil:
			return nil, retry.ContextError(ctx)
		case ctx.Err() != nil:
			return nil, retry.WithContext(ctx, err)
		case err != nil && final(err):
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// Stop ends the attempt in progress and all calls of Wait and Try. It returns when the attempt
// has ended or ctx ends. What is opened afterwards is closed.
func (o *Opener[T]) Stop(ctx context.Context) {
	o.mu.Lock()
	if !o.stopped {
		o.stopped = true
		if o.value.Load() == nil {
			close(o.changed)
		}
	}
	o.mu.Unlock()
	o.stop()
	select {
	case <-o.done:
	case <-ctx.Done():
	}
}
