// Package lock is one interface to the distributed locks of many backends.
//
//	c, err := lock.Open(ctx, "redis://localhost:6379/0?ttl=30s")
//	...
//	defer c.Close(context.Background())
//
//	err = lock.Do(ctx, c.Mutex("orders/42"), func(ctx context.Context) error {
//		// at most one process is here at a time; ctx ends if the lock is lost
//		return ship(ctx, 42)
//	}, lock.WithWait(2*time.Second)) // bounds the wait for the lock, not the work
//
// The scheme of the URL chooses the backend. The program links it by importing its
// driver, such as
//
//	import _ "github.com/interlock-go/lock/redislock"
//
// # Guarantees
//
// A granted lock is a [Lease]. The service keeps it for a TTL (30 s by default), and the
// client renews it every third of the TTL. The holder trusts the lease until
//
//	the instant before the last successful request was sent + TTL - margin
//
// on the local monotonic clock. At that instant at the latest the lease's context ends
// with [ErrLost], whatever the network does. So it ends before the service can grant the
// lock to another client. The margin covers clock rates that differ by up to 0.1 % and
// timers that fire late: TTL/20, at least 10 ms and at most 500 ms, plus TTL/1000. (chrony
// needs maxslewrate 500 for that; see docs/operations.md.)
//
// A stopped process (a debugger, a long pause of the scheduler) notices nothing while it
// is stopped. It finds its lease ended when it checks next, but requests that it sent
// before may still arrive.
//
// The monotonic clock of a suspended machine stands still. On Linux [Lease.Err] and the Err
// of its context count that time too, and [Lease.Done] is closed by the next timer, within
// a third of the TTL. On other systems, and in a virtual machine that its host paused, the
// client learns of the loss when its next renewal is answered: within a third of the TTL if
// the network is back by then, else when the TTL has passed on the clock that stood still.
// Two copies of a virtual machine that are resumed from one snapshot have the same lease and
// the same token.
//
// Against a stopped or suspended holder only the resource itself can protect: pass it the
// fencing token ([Lease.Token]) and let it refuse a token lower than the highest it has seen.
//
// # Composition
//
// [All] locks several locks or none. Packages on top of this one elect a leader (elect),
// run a job on one node at a time (schedule) and move a lock from one backend to another
// while it is in use (migrate). They work with every backend.
//
// # Errors
//
// Every error of a Client, Mutex or Lease is an [*Error]. It wraps one of the sentinels
// below, the error of the context, or the error of the backend. No error contains
// a password.
package lock
