package lock

import (
	"context"
)

// Mutex is a named lock that at most one [Lease] holds at a time, among all who
// use the same backend. It holds no state of a hold, so it may be kept, shared
// and used by any number of goroutines at once.
type Mutex interface {
	// Name returns the name the lock was made with.
	Name() string

	// Lock waits until the lock is granted and returns the hold. ctx bounds the wait
	// and nothing else: a granted lease outlives it.
	//
	// If ctx ends first, Lock returns an error that matches ctx.Err() and leaves
	// nothing behind on the backend. Should that not be acknowledged within
	// a quarter of a second, the error also matches ErrUncertain, and cleaning up goes
	// on in the background until it is known to be done or the lease has run out.
	Lock(ctx context.Context) (*Lease, error)

	// TryLock makes one attempt. It returns an error that matches ErrLocked, with
	// the holder where it is known, if somebody else holds the lock or waits for it.
	TryLock(ctx context.Context) (*Lease, error)
}
