// Package record implements locks for a service that can do no more than conditional writes:
// it writes a record only if the record has not changed since the client read it. Object stores and
// many key-value stores can. A driver implements [Store] and embeds [Locks], and its waiters are those
// of a [Queue]. It adds Capabilities, Close and an opener: the example is a complete driver.
//
// # Protocol
//
// Each lock is one record, which says who holds it, for which TTL, and the last fencing token.
// Every request that changes it is a write with the version that the client has read, so of
// several clients one succeeds, and a request that arrives late is refused:
//
//	acquire   a record that is absent, free or expired becomes that of the attempt, with the next token
//	wait      the place of the process is added to a record that another one holds
//	renew     the record of the attempt is written again, which changes its version
//	release   the record of the attempt becomes free; it stays, because it has the token
//	abandon   a record that is free or absent is written again, so that a late acquire is refused
//
// A client takes the record of another one only after it has seen the same version of it for
// the whole TTL on its own monotonic clock. The holder counts its lease from before it sent the
// write, and the others count from the receipt of a reply that has its version. So the holder
// learns of the end first, whatever the clocks of machines and of the service say, as long as they
// run at the same rate.
//
// No other clock ends a lease: not that of the service, of which a failover or a correction may make a different one,
// and not the wall clock of a client. So a process that has just started has seen nothing. Its Lock waits for the TTL; its
// TryLock is refused until the process has seen the record for that long. A process that calls TryLock once and ends
// never gets the lock of a holder that has died, unless the service removes the record: it calls Lock with a wait limit of
// more than the TTL instead.
//
// A lock that is kept for a minimum hold after its lease has ended has no holder that relies on it. The service may measure
// that time, see [Timer].
//
// # Order
//
// A waiter that has waited for 100 ms, or has seen the lock go to another process before it, writes the place of its process
// into the record. A release leaves the places. A free record is left to the first of them for its turn, which is 1 s, or two
// of its polls, and so on; each client counts that from when it has itself seen the record. So no process that waits starves,
// and one that has died costs the others its turn once. Places are not renewed. A place is no lease, and prolongs none: who
// holds is decided as above.
//
// A record has the version of its form. A record that this package cannot have written is the lock of another program.
//
// DynamoDB lock clients use the same rule of an unchanged version; leader election of Kubernetes
// uses it for its leases.
//
// Costs: an acquire reads and writes, a renewal and a release write. They also read if the service
// does not return the version that it wrote. If it does, a process that has released a lock acquires it again without a read,
// unless another one has acquired it meanwhile. A waiter reads, and writes one place, for which the holder makes two requests
// more at its next write.
package record
