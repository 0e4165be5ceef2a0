// Package zklock is the ZooKeeper driver of package lock. It works with ZooKeeper
// 3.5 or newer and is tested with 3.8 and 3.9, single and in ensembles.
//
//	import _ "github.com/interlock-go/lock/zklock"
//
//	c, err := lock.Open(ctx, "zk://zk1,zk2,zk3/app?ttl=30s")
//
// A connection of one's own is passed in with [New]; it is never closed.
//
// # URL
//
//	zk://[user:password@]host[:port][,host[:port]...][/chroot]
//
// The chroot is an existing node under which everything stands. With a user and a
// password the connections authenticate with digest, and whatever is created is
// for that user alone. Parameters, beside those of package lock:
//
//	prefix=interlock       the node under which the locks stand
//	dial_timeout=3s        to connect to one server
//	open_timeout=10s       to connect at all, when opened and when a session is
//	auth=digest            says that user and password are required
//	tls=false              TLS
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//
// Opening asks a server for its bounds of session timeouts, which are those of the
// TTL, and creates the prefix's node if there is none.
//
// # Guarantees
//
// At most one holder of a key, over failures of servers as long as a majority
// keeps its data. Waiters are served in the order of their arrival. An uncontended
// lock and unlock are one round trip each, the first use of a name three. When a
// holder unlocks, the next has the lock after one round trip, however many wait.
//
// All locks of one TTL are held by one session, whose timeout is the TTL: a TTL
// outside the server's bounds (two to twenty ticks, unless configured) is refused.
// Each further TTL costs a further session, which is closed after a minute without
// use. A process that dies loses its locks when its session does, a tick after the
// TTL at the latest; one that lives keeps them. A session that no server has
// answered for its timeout is given up and not resumed, since its leases are over by
// then and to try would keep what it holds. A lease cannot be extended beyond the TTL
// that it was taken with.
//
// The fencing token is the number of the transaction that created the holder's
// node. It rises over everything but a restored snapshot. The sequence in a node's
// name wraps and starts again, and is no token.
//
// [Backend.Guard] makes a Multi of the caller's own fail when a lease does not
// hold its lock any more.
//
// # Hand-off
//
// A waiter that was once seen directly behind the first owns the lock when the
// first has gone, without asking:
//
//   - Nobody enters before it. The server gives sequences in rising order as long
//     as the lock's node exists, and that cannot be deleted while the waiter's node
//     is in it. So those before it only ever become fewer, and what an old listing,
//     or the listing of a server that lags, says of them is still an upper bound.
//   - The event of the first one's deletion comes over the waiter's own session,
//     whose server has executed it.
//   - That the waiter's own node is there is told by a watch of it that is silent:
//     the events of one connection come in the order of what happened. Over a lost
//     connection they come in any order, and then the waiter asks.
//   - How long the grant lasts is counted from changes of its session that a
//     majority agreed to, as everywhere, and never from the event.
//
// To know in time that it is directly behind the first, a waiter watches the two
// before it. When the farther one has gone it looks, while the nearer one holds the
// lock; if the nearer one goes while others are before it, it looks too. On a
// caller's connection, which does not tell when it was lost, every waiter asks: two
// round trips.
//
// # At the server
//
//	/chroot/prefix/name                   container node, deleted by the server when it is empty for a while
//	/chroot/prefix/name/owner-sequence    ephemeral; its data are the metadata
//
// In the name every byte that is not printable ASCII, every slash, percent sign
// and space, and a leading dot are written as %XX. Other children than these are
// ignored.
//
// # Permissions
//
// READ on the prefix's node, CREATE there for names not used before; READ, WRITE,
// CREATE and DELETE on the nodes of the names. Nodes are created for everybody,
// with a user in the URL for that user alone, or as [WithACL] says.
//
// # Traps
//
// Half a tick is taken to be a quarter of the least session timeout. Where
// minSessionTimeout is configured to less than two ticks, a server that is cut off
// from its leader may answer for longer than is accounted for.
//
// A paused process may go on for a moment after its session has ended. Only a
// check of the token at the resource, or a guard, is proof against that.
package zklock
