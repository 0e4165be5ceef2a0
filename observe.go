package lock

import (
	"context"
	"time"
)

// Observer receives the events of a client. Each field may be nil. The functions are
// called synchronously in the goroutine in which the event happens, which may be one that
// asks a lease or its context for Err. So they must not block, take locks that are held
// around such calls, or close the client. ctx is the context of Lock or TryLock, or one
// with its values; it may have ended.
//
// Events come in pairs, so that counters return to zero:
//
//   - Every call of Lock and TryLock ends in one Acquired or one Failed. Its Event.Waited
//     says whether Waiting was reported. Nesting by WithReentry reports nothing, unless it
//     fails.
//   - Every Acquired is followed by one Released or one Lost with the same Event.Owner,
//     never before it. Closing the client releases.
//
// This holds, and every observer is called, also if another observer panics.
type Observer struct {
	// Waiting: a Lock found the lock held and waits. It is reported once. Event.Err is the
	// [*LockedError].
	Waiting func(ctx context.Context, e Event)
	// Acquired: a lease was granted, after Event.Wait.
	Acquired func(ctx context.Context, e Event)
	// Failed: Lock or TryLock returned Event.Err, after Event.Wait.
	Failed func(ctx context.Context, e Event)
	// Released: a lease was unlocked after Event.Held. Event.Err is what Unlock returned.
	Released func(ctx context.Context, e Event)
	// RenewFailed: a renewal failed with Event.Err; the lease is still trusted. It may be
	// reported a moment after the end of the lease.
	RenewFailed func(ctx context.Context, e Event)
	// Lost: a lease ended with Event.Err after Event.Held without Unlock.
	Lost func(ctx context.Context, e Event)
	// Forgotten: a lease is held, but the program can reach neither the Lease nor its context any
	// more, so it can never unlock it. It is reported once, after a garbage collection, in a
	// goroutine of its own. It is not reported for a lease that ends by itself (WithoutRenewal),
	// and not after the program has called Done of the lease or of its context: something may
	// still wait for that channel. A context derived from that of the lease keeps the lease
	// reachable until it is canceled.
	Forgotten func(ctx context.Context, e Event)
}

// Event is one event of a client.
type Event struct {
	Backend string
	Name    string
	Share   Share         // what was asked for
	Owner   string        // Lease.Owner, one for each grant; empty before the grant
	Token   uint64        // zero before the grant, or if the backend has none
	Wait    time.Duration // since the call of Lock or TryLock
	Waited  bool          // of Acquired and Failed: Waiting was reported for this call
	Held    time.Duration // since the grant
	Place   string        // of Forgotten: file and line of the call of Lock or TryLock, see WithPlace
	Err     error
}
