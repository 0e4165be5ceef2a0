package lock

import (
	"context"
	"time"
)

// Observer receives the events of a client: each field may be nil. Functions are
// called synchronously from the goroutine in which the event happens, which may be
// one that asks a lease or its context for Err, so they must not block, take locks
// that are held around such calls, or close the client. ctx is the context that Lock or TryLock was called with, or one with
// its values; it may have ended.
//
// Events come in pairs, so that what is counted up can be counted down:
//
//   - every call of Lock and TryLock ends in one Acquired or one Failed, whose
//     Event.Waited tells whether it had been Waiting. Nesting by WithReentry takes
//     nothing and tells nothing, unless it fails.
//   - every Acquired is followed by one Released or one Lost with the same
//     Event.Owner, never before it. Closing the client releases.
//
// That holds, and every observer is told, also if another observer panics.
type Observer struct {
	// Waiting: a Lock found the lock held and waits; told once. Event.Err is the
	// [*LockedError].
	Waiting func(ctx context.Context, e Event)
	// Acquired: a lease was granted, after Event.Wait.
	Acquired func(ctx context.Context, e Event)
	// Failed: Lock or TryLock returned Event.Err, after Event.Wait.
	Failed func(ctx context.Context, e Event)
	// Released: a lease was unlocked after Event.Held. Event.Err is what Unlock returned.
	Released func(ctx context.Context, e Event)
	// RenewFailed: a renewal failed with Event.Err; the lease is still trusted. It may
	// come a moment after the lease's end.
	RenewFailed func(ctx context.Context, e Event)
	// Lost: a lease ended with Event.Err after Event.Held though nobody unlocked it.
	Lost func(ctx context.Context, e Event)
}

// Event is what an Observer is told.
type Event struct {
	Backend string
	Name    string
	Owner   string        // that of Lease.Owner, one for each grant; empty before it
	Token   uint64        // zero before the grant, or if the backend has none
	Wait    time.Duration // from the call of Lock or TryLock
	Waited  bool          // of Acquired and Failed: Waiting was told of this call
	Held    time.Duration // since the grant
	Err     error
}
