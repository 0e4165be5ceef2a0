package otellock

import (
	"context"
	"errors"

	"github.com/interlock-go/lock"
)

const (
	outcomeAcquired = "acquired"
	outcomeLocked   = "locked"
	outcomeTimeout  = "timeout"
	outcomeCanceled = "canceled"
	outcomeClosed   = "closed"
	outcomeInvalid  = "invalid"
	outcomeReleased = "released"
	outcomeLost     = "lost"
	outcomeError    = "error"
)

// outcomeOfCall returns the outcome of a failed Lock or TryLock. If the context or
// the wait limit ended the wait, err matches ErrLocked, too, so that is checked last.
func outcomeOfCall(err error) string {
	switch {
	case errors.Is(err, lock.ErrInvalid):
		return outcomeInvalid
	case errors.Is(err, lock.ErrClosed):
		return outcomeClosed
	case errors.Is(err, context.Canceled):
		return outcomeCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, lock.ErrWaitLimit):
		return outcomeTimeout
	case errors.Is(err, lock.ErrLocked):
		return outcomeLocked
	}
	return outcomeError
}

// outcomeOfUnlock returns the outcome of a lease that was unlocked.
func outcomeOfUnlock(err error) string {
	switch {
	case err == nil:
		return outcomeReleased
	case errors.Is(err, lock.ErrLost):
		return outcomeLost
	}
	return outcomeError
}
