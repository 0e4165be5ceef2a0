package call

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// firstWait is for how long a request is awaited before its context is looked at. The contexts of package lock make a timer
// and a channel when their Done is called, and nearly all requests are answered before that.
const firstWait = 2 * time.Millisecond

// secondWait is for how long a request is awaited after that before it is overdue.
const secondWait = 18 * time.Millisecond

// Sending is the state of a request. One that has not been written to a connection can be withdrawn, and then certainly
// is not executed. The zero value is ready.
type Sending struct{ state atomic.Int32 }

const (
	pending = iota
	claimed // for a batch: it is going to be written
	written
	withdrawn
)

// Write is called before the request is written to a connection, maybe several times. If it returns false, the request was
// withdrawn and must not be written.
func (s *Sending) Write() bool {
	return s.state.CompareAndSwap(pending, written) || s.state.CompareAndSwap(claimed, written) || s.Written()
}

// claim prevents the request from being withdrawn. It returns false if it has been.
func (s *Sending) claim() bool { return s.state.CompareAndSwap(pending, claimed) }

// Written reports whether the request has been written to a connection.
func (s *Sending) Written() bool { return s.state.Load() == written }

// withdrawn reports whether the request was withdrawn.
func (s *Sending) withdrawn() bool { return s.state.Load() == withdrawn }

// withdraw prevents the request from being written. It returns false if it has been written.
func (s *Sending) withdraw() bool { return s.state.CompareAndSwap(pending, withdrawn) }

// ending is what the end of a request is awaited with.
type ending struct {
	done  chan struct{}
	timer *time.Timer // of firstWait
}

func newEnding() *ending {
	e := &ending{done: make(chan struct{}, 1), timer: time.NewTimer(firstWait)}
	e.timer.Stop()
	return e
}

// request is a call of f, or a member of a batch. It is the context of f.
type request[T any] struct {
	caller  context.Context
	sending Sending
	end     *ending
	f       func(context.Context, *Sending) (T, error) // nil of a member of a batch
	of      interface{ overdue() }                     // its overdue is called when the request has lasted for 20 ms; it may be nil
	value   T
	err     error
}

func (r *request[T]) run() {
	r.value, r.err = r.f(r, &r.sending)
	r.end.done <- struct{}{}
}

// The context of f has the deadline and the values of that of the caller, and does not end.
func (r *request[T]) Deadline() (time.Time, bool) { return r.caller.Deadline() }
func (r *request[T]) Value(key any) any           { return r.caller.Value(key) }
func (r *request[T]) Done() <-chan struct{}       { return nil }
func (r *request[T]) Err() error                  { return nil }

// Detached calls f, which sends a request, as a task of life, and returns its result. If ctx ends first, Detached returns
// at most 2 ms later, and f goes on: with ErrUncertain if the request has been written to a connection; otherwise the
// request is withdrawn. An error of f after the deadline of ctx matches the error of ctx too.
//
// The context that f gets has the deadline and the values of ctx, and does not end: a client library may use the deadline
// for its connection, and is not to wait for anything else.
func Detached[T any](ctx context.Context, life *Life, f func(context.Context, *Sending) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, backend.NotExecuted(err)
	}
	if !life.Enter() {
		return none, backend.ErrClosed
	}
	r := &request[T]{caller: ctx, end: life.ending(), f: f}
	life.dispatch(r)
	return r.await(life)
}

// await returns the result of r, or what is known of it when its context ends.
func (r *request[T]) await(life *Life) (T, error) {
	var none T
	ctx := r.caller
	var ended <-chan struct{} // of ctx, after firstWait
	for waiting, first := true, true; waiting; {
		select {
		case <-r.end.done:
			waiting = false
		case <-r.end.timer.C:
			if first {
				first, ended = false, ctx.Done()
				r.end.timer.Reset(secondWait)
			} else if r.of != nil {
				r.of.overdue()
			}
		case <-ended:
			if r.sending.withdraw() {
				return none, backend.NotExecuted(ctx.Err())
			}
			return none, backend.Uncertain(ctx.Err())
		}
	}
	r.end.timer.Stop()
	life.ends.Put(r.end)
	if r.err == nil {
		return r.value, nil
	}
	if end := Ended(ctx); end != nil {
		<-ctx.Done() // its timer may be late, and the caller compares the error with it
		if !errors.Is(r.err, end) {
			r.err = fmt.Errorf("%w: %w", r.err, end)
		}
	}
	return r.value, r.err
}

// Ended returns the error of ctx if it has ended or its deadline has passed. The deadline of a socket, which is set from
// the context, may come before its timer.
func Ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}
