// Package memlock is the driver for locks within one process. It is also the
// reference for drivers: it shows each rule of package backend without a service
// in the way.
//
// # URL
//
//	mem:               a space of its own: only users of the same client exclude each other
//	mem://NAME         the space NAME: all who open it in this process share its locks
//
// The parameter prefix=P separates the locks of one application from those of
// others in the same space.
//
// # Guarantees
//
//   - Waiters are served in the order of their arrival. A freed lock is assigned to
//     the first of them before anybody else can take it, so nobody overtakes and
//     one release wakes one waiter.
//   - Fencing tokens rise strictly per lock for as long as the space lives. They
//     come from counters that many locks share, so they have gaps, and a lock that
//     nobody holds takes no memory.
//   - A grant ends exactly when its TTL has passed without a renewal; the lock then
//     goes to the first waiter at once.
//   - A wait that is given up leaves nothing behind.
//   - A holder whose lock is broken is told at once.
//   - There is no goroutine, and a timer only while somebody waits.
//
// # Traps
//
// A space is memory: it excludes nobody in another process, and its tokens begin
// anew with the process. Never compare them with tokens from another backend or from
// an earlier run at a resource that remembers. A space that was opened by name lives
// as long as the process. Everybody within a space shares one clock, so the package
// works inside a testing/synctest bubble; a lock must not be held or waited for from
// inside and outside of a bubble at once.
package memlock
