package lock

import (
	"context"
	"fmt"
)

// Do locks m, calls fn and unlocks, also if fn panics. ctx bounds the wait, and
// its end ends fn's context too. fn's context carries ctx's values; it ends with
// the cause ErrLost if the lock is lost while fn runs, no later than anybody else
// can be granted it, and fn should then stop.
//
// Do returns fn's error joined with that of the lock, if either failed: if the
// lock was lost before fn returned, the result matches ErrLost though fn
// returned nil.
func Do(ctx context.Context, m Mutex, fn func(ctx context.Context) error) (err error) {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		switch uerr := l.Unlock(ctx); {
		case uerr == nil:
		case err == nil:
			err = uerr
		default:
			err = fmt.Errorf("%w; %w", err, uerr)
		}
	}()
	inner, end := newDoContext(ctx, l)
	defer end()
	return fn(inner)
}
