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
// the lock after one round trip, however many wait: package places describes the waiting.
//
// One session holds all locks of one TTL. Its timeout is the TTL and five eighths of a tick.
// A TTL outside the server's bounds of session timeouts (two to twenty ticks by default) is
// refused, and a lease cannot be extended beyond its TTL. Each further TTL costs a session,
// which is closed after a minute without use. When a process dies its locks end with the
// session, at most a tick after the timeout.
//
// A lease is trusted for its TTL from a ping before the request that granted it: a sixteenth
// of the TTL earlier at most, or four tenths if the attempt had to wait. Pings and reads prove nothing:
// a server without a connection to its leader answers them. A change that a majority has
// agreed to proves that the pings before it have arrived. The driver gives up a session for
// which that is not certain any more.
//
// The fencing token is the id of the transaction that created the holder's node. It
// rises over everything but a restored snapshot. The sequence number in the name of a
// node begins again with the lock's node, and is not a token.
//
// An uncontended lock and unlock take one round trip each for every share, beside other readers
// one more, and beside other permits three more.
//
// Releases of this driver before it had shares may use the same names: they read the
// zeros in the name of a shared node as a part of the number, so it excludes them, and theirs
// exclude it. Their Inspect shows one holder, and their Break removes the first. Releases that
// had shares refuse a capacity other than that of the first share in the queue.
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
// After 2^31 - 2^20 attempts for one name, the next ones wait for up to their TTL until its
// queue is empty, and are then served in any order.
//
// A paused process may go on for a moment after its session has ended. A check of the
// token at the resource, or [Backend.Guard], prevents damage.
package zklock
