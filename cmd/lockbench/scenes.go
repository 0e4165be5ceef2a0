package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/fence"
)

const (
	stock     = 100
	order     = 60
	buyers    = 2
	readWrite = time.Millisecond // between reading and writing, as over a network
	stopTTL   = time.Second      // the TTL of the stopped holder, if the service allows it
)

// counterResult is the result of increment.
type counterResult struct {
	Made   int64         `json:"made"`    // increments
	Says   int64         `json:"says"`    // the counter
	Lost   int64         `json:"lost"`    // increments
	Took   time.Duration `json:"took_ns"` // of all increments together
	Locked bool          `json:"locked"`
}

// stockResult is the result of sell.
type stockResult struct {
	Sold     int64 `json:"sold"`
	Says     int64 `json:"says"`     // the stock
	Oversold int64 `json:"oversold"` // more than the stock
	Refused  int64 `json:"refused"`  // buyers
	Locked   bool  `json:"locked"`
}

// fencingResult is the result of writeAfterLoss.
type fencingResult struct {
	Stopped   uint64 `json:"stopped_token"`
	Successor uint64 `json:"successor_token"`
	Unchecked uint64 `json:"unchecked"` // token of the last write without a check
	Checked   uint64 `json:"checked"`   // token of the last write with a check
	Refusal   string `json:"refusal"`
}

func (c counterResult) wrong() bool { return c.Lost != 0 }
func (s stockResult) wrong() bool   { return s.Oversold != 0 || s.Sold != stock-s.Says }
func (f fencingResult) wrong() bool { return f.Successor <= f.Stopped || f.Checked != f.Successor }

// concurrently runs f for each mutex. f calls do to run a function under the mutex, or
// without a lock if that is nil. The first error ends the others.
func concurrently(ctx context.Context, ms []lock.Mutex, f func(ctx context.Context, do func(func() error) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, m := range ms {
		all.Go(func() {
			do := func(g func() error) error {
				if m == nil {
					return g()
				}
				return lock.Do(ctx, m, func(context.Context) error { return g() })
			}
			if err := f(ctx, do); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// barrier returns a function that returns when n goroutines have called it.
func barrier(n int) func() {
	var arrived sync.WaitGroup
	arrived.Add(n)
	return func() { arrived.Done(); arrived.Wait() }
}

// increment makes each worker increment a counter each times. With inStep all workers
// read the counter before one of them writes it.
func increment(ctx context.Context, ms []lock.Mutex, each int, inStep bool) (counterResult, error) {
	var counter, made atomic.Int64 // a read and a write are atomic, but not both together
	allRead := barrier(len(ms))
	began := time.Now()
	err := concurrently(ctx, ms, func(ctx context.Context, do func(func() error) error) error {
		for i := range each {
			err := do(func() error {
				n := counter.Load()
				if inStep && i == 0 {
					allRead()
				}
				if err := sleep(ctx, readWrite); err != nil {
					return err
				}
				counter.Store(n + 1)
				made.Add(1)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	c := counterResult{Made: made.Load(), Says: counter.Load(), Took: time.Since(began), Locked: ms[0] != nil}
	c.Lost = c.Made - c.Says
	return c, err
}

// sell makes each buyer buy if the stock is large enough. With inStep all buyers read
// the stock before one of them writes it.
func sell(ctx context.Context, ms []lock.Mutex, inStep bool) (stockResult, error) {
	var left, sold, refused atomic.Int64
	left.Store(stock)
	allRead := barrier(len(ms))
	err := concurrently(ctx, ms, func(ctx context.Context, do func(func() error) error) error {
		return do(func() error {
			n := left.Load()
			if inStep {
				allRead()
			}
			if n < order {
				refused.Add(1)
				return nil
			}
			if err := sleep(ctx, readWrite); err != nil {
				return err
			}
			left.Store(n - order)
			sold.Add(order)
			return nil
		})
	})
	s := stockResult{Sold: sold.Load(), Says: left.Load(), Refused: refused.Load(), Locked: ms[0] != nil}
	s.Oversold = max(s.Sold-stock, 0)
	return s, err
}

// writeAfterLoss stops the holder of client one until client two has written, and then
// writes with the token of one.
func writeAfterLoss(ctx context.Context, one, two *lock.Client, name string) (fencingResult, error) {
	var r fencingResult
	ttl := max(stopTTL, one.Capabilities().MinTTL)
	// A stopped process does not renew.
	stopped, err := one.Mutex(name, lock.WithTTL(ttl), lock.WithoutRenewal()).Lock(ctx)
	if err != nil {
		return r, err
	}
	defer func() { _ = stopped.Unlock(context.WithoutCancel(ctx)) }() // ErrLost, as intended
	if one.Capabilities().Loss == backend.LossProcess {               // the lease does not expire
		if _, err := two.Break(ctx, name); err != nil {
			return r, err
		}
	}
	successor, err := two.Mutex(name).Lock(ctx)
	if err != nil {
		return r, err
	}
	defer func() { _ = successor.Unlock(context.WithoutCancel(ctx)) }() // if that fails, Close releases it
	var guard fence.Guard
	write := func(l *lock.Lease) error {
		token, ok := l.Token()
		if !ok {
			return fence.ErrNoToken
		}
		r.Unchecked = token
		return guard.Do(token, func() error { r.Checked = token; return nil })
	}
	r.Stopped, _ = stopped.Token()
	r.Successor, _ = successor.Token()
	if err := write(successor); err != nil {
		return r, err
	}
	switch err := write(stopped); {
	case errors.Is(err, fence.ErrStale):
		r.Refusal = err.Error()
	case err != nil:
		return r, err
	}
	return r, nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
