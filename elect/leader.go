package elect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/internal/retry"
)

// Leader returns the holder of m, or nil if m is free. It asks the backend once; the
// answer may be out of date when it arrives. If m is not the lock of a client or one that
// is being migrated, or its backend cannot inspect, the error matches errors.ErrUnsupported.
func Leader(ctx context.Context, m lock.Mutex) (*lock.Holder, error) {
	i, ok := m.(interface {
		Inspect(ctx context.Context) (lock.Info, error)
	})
	if !ok {
		return nil, &lock.Error{Op: "inspect", Name: m.Name(), Err: errors.ErrUnsupported}
	}
	info, err := i.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	return info.Holder, nil
}

// Watch yields the holder of m, nil if m is free, and then each change, until ctx ends.
// It calls Leader once in each interval, which must be positive: a change is yielded at
// most one interval late, and a term that lies between two calls is not seen.
//
// If the service notifies clients of changes (etcd, ZooKeeper), Watch also calls Leader
// after each notification, at most ten times in an interval. The interval can then be long.
//
// If Leader fails, Watch yields the error once and continues; the next answer is
// yielded even if the holder is the same as before. After an error that repeating
// cannot change (lock.ErrInvalid, lock.ErrClosed, errors.ErrUnsupported) Watch ends.
func Watch(ctx context.Context, m lock.Mutex, interval time.Duration) iter.Seq2[*lock.Holder, error] {
	return func(yield func(*lock.Holder, error) bool) {
		if interval <= 0 {
			yield(nil, &lock.Error{Op: "watch", Name: m.Name(),
				Err: fmt.Errorf("%w interval %v: want a positive duration", lock.ErrInvalid, interval)})
			return
		}
		changed, stop := changesOf(ctx, m)
		defer stop()
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		var last *answer
		for {
			asked := time.Now()
			leader, err := Leader(ctx, m)
			if ctx.Err() != nil {
				return
			}
			a := answer{failed: err != nil, held: leader != nil}
			if leader != nil {
				a.owner, a.token = leader.Owner, leader.Token
			}
			final := err != nil && !retry.Transient(err)
			if last == nil || a != *last || final {
				if !yield(leader, err) || final {
					return
				}
				last = &a
			}
			select {
			case <-ticker.C:
			case <-changed:
				if !call.Sleep(ctx, time.Until(asked.Add(interval/10))) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// changesOf returns a channel that receives a value after changes of m, as far as the
// service notifies of them. stop ends that.
func changesOf(ctx context.Context, m lock.Mutex) (changed <-chan struct{}, stop func()) {
	w, ok := m.(interface {
		WatchChanges(ctx context.Context, changed func()) error
	})
	if !ok {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	c := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = w.WatchChanges(ctx, func() { // without it Watch polls
			select {
			case c <- struct{}{}:
			default:
			}
		})
	})
	return c, func() {
		cancel()
		watching.Wait()
	}
}

// answer is what Watch compares: it yields an answer that differs from the one before.
type answer struct {
	failed, held bool
	owner        string
	token        uint64
}
