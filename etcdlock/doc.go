// Package etcdlock is the etcd driver of package lock. It works with etcd 3.4 and
// newer, single nodes and clusters.
//
//	import _ "github.com/interlock-go/lock/etcdlock"
//
//	c, err := lock.Open(ctx, "etcd://e1:2379,e2:2379,e3:2379/shop?ttl=30s")
//
// A client of one's own is passed in with [New]; it is never closed.
//
// # URL
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix][?param=value&...]
//	etcds://...                        the same over TLS
//
// The port is 2379 and the prefix "lock" if not given. Parameters, beside those of
// package lock:
//
//	dial_timeout=5s        to connect, and for an answer while opening
//	namespace=             what stands before every key, as it is, such as /myapp/
//	queue_view=32          see [WithQueueView]
//	tls=false              TLS with etcd://
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//
// Opening asks the cluster for the shortest lease that it grants, which is then the
// shortest TTL: 2 s with the servers' defaults.
//
// # Guarantees
//
// At most one holder of a key, decided by consensus, over any failure of a minority
// of the servers, with one exception of etcd's own: a leader that was frozen for longer
// than a lease has left may revoke it when it goes on, though it was renewed with its
// successor. The holder is told by its watch, some milliseconds after the next may
// have been granted; a fencing token protects from it. Waiters are served in the order of their arrival, over failures
// too. An uncontended lock and unlock are one round trip each, after the first
// lease was made. A hand-off is one round trip, or half of one after the release
// has reached the servers, while no more than 32 processes contend for the key; see
// [WithQueueView]. An idle waiter sends nothing.
//
// The fencing token is the revision in which the holder's key was created. It rises
// over everything but the restoring of a snapshot. [Backend.OwnerCmp] makes etcd
// itself check the holder of a lock in a transaction of one's own.
//
// # At the server
//
// The lock of the name N is a folder with a key for the holder and for each waiter,
// all under leases, so that nothing outlives those who made it:
//
//	prefix/N/lease-owner     metadata; the oldest is the holder
//	prefix/%x/lease-owner    refuses late requests of an attempt that was abandoned
//
// with the lease in 16 and the owner in 32 hexadecimal digits. In prefix and N a
// slash, a percent sign, a space and control characters are percent-encoded.
//
// Any other key in the folder counts as a place in the queue, so a Mutex of package
// concurrency with the prefix "lock/N", or "etcdctl lock lock/N", shares the lock
// and is served in turn.
//
// All locks of one TTL share a lease, which one request in a third of the TTL keeps
// alive. Its end is the loss of everything under it, and is told before the servers
// can grant anything to others: the clock runs from before each request that they
// answered. Extending a lease to another TTL moves the key to the lease of that TTL; it
// keeps its token.
//
// # Permissions
//
// A user needs a role with readwrite on the keys of the prefix, and nothing else:
//
//	etcdctl role add locks
//	etcdctl role grant-permission --prefix locks readwrite lock/
//	etcdctl user grant-role app locks
//
// With a namespace it stands before "lock/".
//
// # Traps
//
// A TTL lasts whole seconds, rounded up. MinTTL of the capabilities is what the
// servers grant if they are asked for one second.
//
// A cluster restored from a snapshot knows of no lock taken since, and issues
// tokens again, unless its revision was raised (etcdutl snapshot restore
// --bump-revision --mark-compacted).
//
// A new leader extends all leases, so the locks of a process that crashed just
// before may stay for another TTL.
//
// A proxy that repeats requests is harmless: an attempt has one key however often it
// is sent.
//
// A client given to [New] should be made with DialKeepAliveTime and
// DialKeepAliveTimeout, or it waits for the kernel to notice a dead connection.
//
// # Protocol
//
// Taking turns by creation revision is what etcd's own package concurrency does;
// ZooKeeper's recipes describe the same with sequential nodes. Here an attempt is
// one transaction, which reads the folder before it puts the key; a key belongs to
// one attempt and not to a session; the waiters of a process share one watch, begun
// without a revision since one from the past is served in batches; and the lease is
// kept alive by the driver, which knows when each request was sent.
package etcdlock
