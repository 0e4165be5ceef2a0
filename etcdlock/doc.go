// Package etcdlock is the etcd driver of package lock. It works with etcd 3.4 and
// newer, single nodes and clusters.
//
//	import _ "github.com/interlock-go/lock/etcdlock"
//
//	c, err := lock.Open(ctx, "etcd://e1:2379,e2:2379,e3:2379/shop?ttl=30s")
//
// [New] uses a client of the caller, and never closes it.
//
// # URL
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix][?param=value&...]
//	etcds://...                        the same over TLS
//
// The default port is 2379, the default prefix "lock". Parameters, beside those of
// package lock:
//
//	dial_timeout=5s        limit to connect, and to answer while opening
//	namespace=             prepended to every key unescaped, such as /myapp/
//	tls=false              TLS with etcd://
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//
// Open asks the cluster for the shortest lease that it grants. That is the minimum
// TTL: 2 s with the default settings of the servers.
//
// # Guarantees
//
// At most one client holds a key, by consensus, also when a minority of the servers
// fails. etcd has one exception: a leader that was frozen for longer than a lease has
// left may revoke it when it continues, although the holder renewed it with the next
// leader. The watch of the holder reports that, some milliseconds after the next grant
// is possible. A fencing token protects from it.
//
// The servers grant in the order of arrival, also after failures. An uncontended lock
// and an unlock take one round trip each, after the lease was granted; so do a reader beside
// readers, and permits of a free lock. After an unlock the next waiter has the lock with an
// event, after one round trip, however many wait.
//
// The fencing token is the revision that created the key of the holder. It rises over
// all events but the restore of a snapshot. With [Backend.OwnerCmp] etcd checks the
// holder in a transaction of the caller.
//
// # Keys
//
// The lock with name N is a folder with one key for the holder and one for each
// waiter. All keys are under leases, so they end with the process that put them:
//
//	prefix/N/lease-number              owner, line feed, metadata; the oldest key is that of the holder
//	prefix/N/%r-lease-number           a reader
//	prefix/N/%p10-2-lease-number       2 permits of 10
//	prefix/%s/lease                    marker of a session
//
// A shared key holds the lock as soon as there is no exclusive one before it and the weights
// before it leave enough of the capacity. After the owner of a holder of permits are its slots,
// after that of a writer that has become a reader is "read". The lease has 16 hexadecimal digits,
// the owner id 32. No two attempts of a process have one number at the same time; a later one has
// that of an earlier one again, because the servers keep the names of deleted keys until a
// compaction. In prefix and N a slash, a percent sign, a space and control characters are
// percent-encoded.
//
// Every other key in the folder is an exclusive place in the queue too, unless its name begins
// with "%r-". So a Mutex of package concurrency with the prefix "lock/N", or
// "etcdctl lock lock/N", shares the lock in the same order.
//
// All locks with the same TTL share a lease. The driver sends one keep-alive request
// every eighth of the TTL. If the lease ends, all its grants are lost. The driver counts
// the lease from before each answered request, so holders learn of the end before the
// servers grant to others. Lease.Extend cannot exceed the TTL of the lock.
//
// The process watches the marker, and no key that it holds. Break writes the owners of broken
// grants into it. A request to acquire requires the revision of the marker, so that putting it
// makes the servers refuse earlier requests that had no answer.
//
// # Permissions
//
// A user needs a role with readwrite on the keys of the prefix, and nothing else:
//
//	etcdctl role add locks
//	etcdctl role grant-permission --prefix locks readwrite lock/
//	etcdctl user grant-role app locks
//
// A namespace comes before "lock/".
//
// # Limits
//
// A TTL is rounded up to whole seconds. A cluster that was restored from a snapshot does
// not know later locks and issues tokens again, unless its revision was raised (etcdutl
// snapshot restore --bump-revision --mark-compacted). A new leader extends all leases,
// so the locks of a process that crashed just before may stay for another TTL.
package etcdlock
