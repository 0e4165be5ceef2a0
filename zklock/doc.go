// Package zklock is the ZooKeeper driver of package lock, for ZooKeeper 3.5 or newer. It
// is tested with 3.8 and 3.9, single servers and ensembles.
//
//	import _ "github.com/interlock-go/lock/zklock"
//
//	c, err := lock.Open(ctx, "zk://zk1,zk2,zk3/app?ttl=30s")
//
// [New] makes a backend with options that a URL does not have. [Backend.Client] returns the
// connection of a session, for requests of the caller.
//
// # URL
//
//	zk://[user:password@]host[:port][,host[:port]...][/chroot]
//
// The chroot is an existing node that contains everything else. With a user and a
// password the connections authenticate with digest, and the nodes that they create are
// for that user alone. Parameters, besides those of package lock:
//
//	prefix=interlock       the node below which the locks are
//	dial_timeout=3s        to connect to one server
//	open_timeout=10s       to open a session
//	retention=24h          see [WithRetention]
//	auth=digest            requires user and password
//	tls=false              TLS
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//
// # Guarantees
//
// At most one client holds a key as long as a majority of the servers keeps its data.
// Waiters are served in the order of their arrival. An uncontended lock and unlock take
// one round trip each, the first use of a name three. After an unlock the next waiter has
// the lock after one round trip, however many wait.
//
// Read locks and the permits of semaphores are granted in the same queue, see Shares.
//
// One session holds all locks of one TTL. Its timeout is the TTL, so a TTL outside the
// server's bounds (two to twenty ticks by default) is refused, and a lease cannot be
// extended beyond its TTL. Each further TTL costs a session, which is closed after a
// minute without use. When a process dies its locks end with the session, at most a tick
// after the TTL. The driver gives up a session without an answer for its timeout.
//
// The fencing token is the id of the transaction that created the holder's node. It
// rises over everything but a restored snapshot. The sequence number in the name of a
// node begins again with the lock's node, and is not a token.
//
// # Hand-off
//
// A waiter that was once the second in the queue is granted the lock without a request
// when the node of the first is deleted:
//
//   - No node enters before it. Sequence numbers rise as long as the lock's node exists,
//     and that cannot be deleted while the waiter's node is in it. So the nodes in front
//     only become fewer, and an old listing is an upper bound of them.
//   - The event of the deletion arrives over the waiter's own session.
//   - A silent watch of the waiter's own node proves that this exists: events of one
//     connection arrive in the order of the changes. After a reconnect they do not, and
//     the waiter reads the queue.
//   - Until is counted from changes of its session that a majority agreed to, as
//     for every grant, and never from the event.
//
// Only the first waiter of a process asks the service; the others wait for their turn in the
// process. It watches the two nodes in front of it. When the further one is deleted, it reads
// the nodes in front of that, or the queue if those are many. One listing of the queue
// serves all waiters of the process that are in it, by the first rule. So a cycle
// costs the same however many wait.
//
// # Shares
//
// A reader or a request for permits is a node in the same queue. The head of the queue holds, as
// far as it fits: that depends on the nodes in front only, so a contender that holds once does so
// until its node is deleted. Nothing else says who holds.
//
//   - A reader watches its own node and the last two exclusive ones in front of it. So all readers
//     between two writers are granted one round trip after the first writer's release.
//   - Of the waiters for permits of a process the first asks. It watches the node directly in
//     front, or, directly behind a holder, the children of the lock's node. A cycle is eight to
//     ten requests with 32 waiters and with 256.
//   - Slots are written into the nodes, in the order of the queue, for all holders that have none
//     yet, by whichever of them notices first, under the condition that no other has done so. They
//     are free when the node is deleted. A grant beside which there was nothing when its node was
//     created has the first slots, and writes nothing.
//   - Downgrade writes into the node that it is a reader's.
//   - A contender with another capacity than the first shared node in front of it deletes its own.
//
// An uncontended lock and unlock take one round trip each for every share, beside other readers
// one more, and beside other permits three more.
//
// Earlier releases of this driver, which know no shares, may use the same names: they read the
// zeros in the name of a shared node as a part of the number, so it excludes them, and theirs
// exclude it. Their Inspect shows one holder, and their Break removes the first.
//
// # Nodes
//
//	/chroot/prefix/name                     container, deleted some time after its last child
//	/chroot/prefix/name/owner-sequence      ephemeral; its data are the metadata
//	/chroot/prefix/name/owner-0sequence     a reader
//	/chroot/prefix/name/owner-00sequence    permits; after the metadata and a zero byte: 2/10 0-1,
//	                                        which is two of ten, and their slots
//
// After a downgrade the metadata of an exclusive node are followed by a zero byte and "read".
//
// In the name, %XX stands for every byte that is not printable ASCII, for slash, percent
// sign and space, and for a leading dot. The driver ignores other children.
//
// # Permissions
//
// READ on the prefix's node, CREATE there for new names; READ, WRITE, CREATE and DELETE on
// the nodes of the names. CREATE on the chroot, until the prefix's node exists. DELETE on the
// prefix's node after 2^31 attempts for one name, and for retention.
// The nodes that the driver creates permit everything to all users, with a user in the URL
// to that user alone, or what [WithACL] says.
//
// Clients of one semaphore write into the nodes of each other.
//
// # Limits
//
// A TryLock is in the queue for a moment. Another one behind it is refused in that moment, though
// it might fit beside the holders.
//
// Half a tick is assumed to be a quarter of the least session timeout. If minSessionTimeout
// is configured to less than two ticks, two clients can hold.
//
// After 2^31 - 2^20 attempts for one name, the next ones wait until its queue is empty, and
// are then served in any order.
//
// A paused process may go on for a moment after its session has ended. A check of the
// token at the resource, or [Backend.Guard], prevents damage.
package zklock
