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
//	interlock.lock.held              up-down, {lease}     leases held now
//	interlock.lock.waiting           up-down, {waiter}    calls of Lock that wait for a held lock now
//	interlock.lock.lost              counter, {lease}     leases lost before or at Unlock
//	interlock.lock.renewal.failures  counter, {renewal}   renewals that failed while the lease was still trusted
//
// All have the attributes interlock.backend and interlock.mode (exclusive, read or permits),
// and the histograms interlock.outcome:
//
//	wait  acquired, locked (TryLock), timeout, canceled, closed, invalid, error
//	hold  released, lost, error (the backend did not acknowledge the Unlock)
//
// A loss that only Unlock detected counts as lost, too. The number of series does not
// depend on the number of locks, except with [WithNameAttribute].
//
// # Traces
//
// Each call of Lock or TryLock is a span "lock.acquire", each lease a span "lock.hold"
// with a link to that of its acquisition. Both are children of the caller's span and have
// the name of the lock. A failed renewal is an event of "lock.hold". A loss is an event,
// too, and sets the status of the span to Error.
package otellock
