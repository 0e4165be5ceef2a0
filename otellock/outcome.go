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

// failure tells how a call of Lock or TryLock failed. The error of a wait that was
// given up also matches ErrLocked, so the end of the context is asked about first.
func failure(err error) string {
	switch {
	case errors.Is(err, lock.ErrInvalid):
		return outcomeInvalid
	case errors.Is(err, lock.ErrClosed):
		return outcomeClosed
	case errors.Is(err, context.Canceled):
		return outcomeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return outcomeTimeout
	case errors.Is(err, lock.ErrLocked):
		return outcomeLocked
	}
	return outcomeError
}

// ending tells how a lease that was unlocked ended.
func ending(err error) string {
	switch {
	case err == nil:
		return outcomeReleased
	case errors.Is(err, lock.ErrLost):
		return outcomeLost
	}
	return outcomeError
}
