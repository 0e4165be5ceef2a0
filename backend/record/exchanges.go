package record

import (
	"context"
	"sync"

	"github.com/interlock-go/lock/backend"
)

// Exchanges counts the exchanges with a service that are under way, for a driver whose Close waits
// for them. A client library that takes no context needs that: a method of the driver returns when
// its context ends, and the exchange goes on until the timeout of the library. The example of the
// package does so. The zero value is ready. It may be used by any number of goroutines at once.
type Exchanges struct {
	mu      sync.Mutex // guards closed, and adding to running
	closed  bool
	running sync.WaitGroup
}

// Begin counts an exchange until End. It returns the error of ctx, marked by NotExecuted, if that has
// ended, and ErrClosed after Close. It counts nothing then.
func (e *Exchanges) Begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return backend.NotExecuted(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return backend.ErrClosed
	}
	e.running.Add(1)
	return nil
}

// End is called at the end of an exchange for which Begin returned nil.
func (e *Exchanges) End() { e.running.Done() }

// Close makes Begin return ErrClosed. It returns when all exchanges have ended, or with the error of ctx
// when that ends. It may be called again.
func (e *Exchanges) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	done := make(chan struct{})
	go func() { e.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
