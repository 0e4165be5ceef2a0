// Package memlock is the driver for locks between the goroutines of one process. It is
// also the reference for drivers: it shows each rule of package backend without
// a service.
//
// # URL
//
//	mem:               a space of its own, used by this client only
//	mem://NAME         the space NAME, shared by all clients of this process that open it
//
// The parameter prefix=P separates the locks of one application from those of
// others in the same space.
//
// # Guarantees
//
//   - Waiters are served in the order of arrival. A freed lock is assigned to the
//     first waiter, so no other client can overtake it, and one release wakes one
//     waiter.
//   - Fencing tokens rise strictly for each lock as long as the space lives. Many
//     locks share a counter, so there are gaps, and a free lock uses no memory.
//   - A grant ends exactly when its TTL has passed without a renewal. The lock then
//     goes to the first waiter.
//   - A wait that is cancelled leaves nothing behind.
//   - A holder whose lock is broken is notified at once.
//   - There is no goroutine, and there is a timer only while a client waits.
//
// # Limits
//
// A space excludes no other process, and its tokens restart with the process. Do not
// compare them with tokens from another backend or from an earlier run. A named space
// lives as long as the process. All clients of a space share one clock, so the package
// works inside a testing/synctest bubble; do not use a lock from inside and outside of
// a bubble at the same time.
package memlock
