// Package otellock reports the events of a lock client to OpenTelemetry.
//
//	o, err := otellock.New()
//	...
//	c, err := lock.Open(ctx, url, lock.WithObserver(o))
//
// # Metrics
//
//	interlock.lock.wait.duration     histogram, s         from the call of Lock or TryLock to its end
//	interlock.lock.hold.duration     histogram, s         from the grant to the end of the lease
//	interlock.lock.held              up-down, {lease}     leases that are held now
//	interlock.lock.waiting           up-down, {waiter}    calls of Lock that wait now
//	interlock.lock.lost              counter, {lease}     leases that ended though nobody unlocked them
//	interlock.lock.renewal.failures  counter, {renewal}   renewals that failed; the lease was still trusted
//
// All have the attribute interlock.backend, and the histograms interlock.outcome:
//
//	wait  acquired, locked (TryLock), timeout, canceled, closed, invalid, error
//	hold  released, lost, error (the backend did not acknowledge the Unlock)
//
// A loss that Unlock alone found out counts as a loss too. The number of series
// does not depend on the number of locks, unless [WithNameAttribute] is given.
//
// # Traces
//
// Every call of Lock or TryLock is a span "lock.acquire", a child of the caller's;
// every lease is a span "lock.hold", a child of the same and linked to that of its
// acquisition. Both bear the lock's name. Failed renewals are events of the hold; a
// loss is an event and makes its status an error.
package otellock
