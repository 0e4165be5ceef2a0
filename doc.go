// Package lock is one interface to the distributed locks of many backends.
//
//	c, err := lock.Open(ctx, "redis://localhost:6379/0?ttl=30s")
//	...
//	defer c.Close(context.Background())
//
//	err = lock.Do(ctx, c.Mutex("orders/42"), func(ctx context.Context) error {
//		// at most one process is here at a time; ctx ends if the lock is lost
//		return ship(ctx, 42)
//	})
//
// The backend is chosen by the URL and linked in by importing its driver, such as
//
//	import _ "github.com/interlock-go/lock/redislock"
//
// # What is promised
//
// A granted lock is a [Lease]: the service keeps it for a TTL (30 s by default)
// and the client renews it at each third. The lease is trusted until
//
//	the instant before the last successful request was sent + TTL - margin
//
// on the local monotonic clock. At that instant at the latest, whatever the
// network does, the lease's context ends with [ErrLost], so it ends before the
// service can grant the lock to anyone else. The margin covers clock rates
// that differ by up to 0.1 % and late timers: TTL/20, at least 10 ms and at most
// 500 ms, plus TTL/1000.
//
// A process that is stopped (a debugger, a long pause of the scheduler) cannot
// notice anything while it is stopped. It finds its lease over when it next looks,
// but what it had already sent may still arrive. A machine that is suspended, or
// whose virtual machine is paused, is worse: its monotonic clock stands still, and
// it learns of the loss with its next renewal, within a third of the TTL. Against
// both only the resource itself can protect: pass it the fencing token
// ([Lease.Token]) and let it refuse a token lower than the highest it has seen.
//
// # Made of locks
//
// What is made of locks is a [Mutex] or takes one, whichever the backend: [All] takes
// several or none, [Campaign] elects a leader, [Every] runs a job on one node at
// a time, [Migrate] moves a lock from one backend to another while it is in use.
//
// # Errors
//
// Every error of a Client, Mutex or Lease is an [*Error] that wraps one of the
// sentinels below, the error of the context, or the error of the backend. No
// error contains a password.
package lock
