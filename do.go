package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/work"
)

type doConfig struct{ wait time.Duration }

// Do locks m, calls fn and unlocks, also if fn panics. ctx bounds the wait, and its end
// also ends the context of fn. WithWait bounds the wait alone. The context of fn has the
// values of ctx and the lease, see FromContext. It ends with the cause ErrLost if the lock is
// lost while fn runs, before another client can be granted the lock; fn should then return.
//
// Do returns the error of fn, joined with that of the lock if both failed. If the lock was
// lost before fn returned, the error matches ErrLost even if fn returned nil.
func Do(ctx context.Context, m Mutex, fn func(ctx context.Context) error, opts ...DoOption) (err error) {
	var cfg doConfig
	for _, o := range opts {
		o.applyDo(&cfg)
	}
	l, err := lockWithin(ctx, m, cfg.wait)
	if err != nil {
		return err
	}
	defer func() {
		switch unlockErr := l.Unlock(ctx); {
		case unlockErr == nil || errors.Is(err, unlockErr): // fn may return why its context ended
		case err == nil:
			err = unlockErr
		default:
			err = fmt.Errorf("%w; %w", err, unlockErr)
		}
	}()
	inner, end := work.WithLease(ctx, l)
	defer end()
	return fn(inner)
}

// lockWithin locks m and waits for at most d, without a limit if d is zero.
func lockWithin(ctx context.Context, m Mutex, d time.Duration) (*Lease, error) {
	if err := validWait(d); err != nil {
		return nil, opError("lock", m.Name(), err)
	}
	if d == 0 {
		return m.Lock(ctx)
	}
	limited, cancel := retry.WithWaitLimit(ctx, d)
	defer cancel()
	l, err := m.Lock(limited)
	if err != nil && retry.LimitReached(limited) && (!errors.Is(err, ErrWaitLimit) || errors.Is(err, context.DeadlineExceeded)) {
		// A Mutex of another package returns the error of the context that it was given.
		err = opError("lock", m.Name(), retry.WithContext(limited, err))
	}
	return l, err
}
