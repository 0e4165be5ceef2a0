// Package redlock is the driver of package lock over several independent Redis masters
// (6.2 or newer, or Valkey), of which a majority must agree (Redlock). Package redislock is
// for one server, Sentinel and clusters.
//
//	import _ "github.com/interlock-go/lock/redislock/redlock"
//
//	c, err := lock.Open(ctx, "redlock://r1:6379,r2:6379,r3:6379/0?ttl=30s")
//
// [New] uses the clients of an application, and never closes them.
//
// # URL
//
//	redlock://[user:password@]host[:port],host,host[,host...][/db]
//
// Parameters, beside those of package lock and those of a redis URL in package redislock
// except wait_replicas and wait_timeout (prefix, dial_timeout, read_timeout, pool_size, eviction, tls,
// tls_ca, tls_cert, tls_key, tls_server_name):
//
//	node_timeout=500ms     for one node, before the others decide without it; at most a quarter of the TTL
//	restart_delay=5m       how long a node that may have lost grants has no vote, and the longest TTL
//	retention=24h          how long the fence counter of a name is kept; 1m or more, 0 for ever
//	set=r1:6379,...        name of the set of nodes, the same for all clients; the sorted addresses by default
//	durable=false          every node keeps all acknowledged data over a restart (appendfsync always)
//
// # Guarantees
//
// Each request goes to all nodes at the same time, and a majority decides. A grant lasts as
// long as a majority certainly keeps it. At most one client holds a lock while no more than
// a minority of the nodes stop, are cut off or lose their data within a TTL, and their
// clocks run at the same rate. A release wakes one waiter of each process, and the first that
// asks a majority gets the lock: there is no order between processes.
//
// A node that lost its data, or a part of it, in a restart has no vote for restart_delay, so
// that it cannot help to grant a held lock again. The clients count that delay on their
// monotonic clocks. Nodes whose wall clocks differ by more than a second do not vote together,
// and one that differs from a majority has no vote for restart_delay after a client has seen
// that. Start Redis after time-sync.target.
//
// The key {prefix:}:born is the marker of a node. It has the run id of the server, which needs
// +info, the set of nodes, and how much of a quarantine has passed. Clients refuse a node of
// another set. A new set of nodes is ready at once if all of them answer at its first use. All
// clients that share locks must use the same set, restart_delay and durable.
// docs/backends/redlock.md says how the nodes are changed.
//
// Errors name every node that failed. A lock.Client with a logger logs the beginning and the
// end of each outage of a node.
//
// Keys, permissions and limits at each node are those of package redislock, but for the fence
// counter, {prefix:N}:f, which each lock has for itself.
package redlock
