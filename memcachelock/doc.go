// Package memcachelock is the Memcached driver of package lock. It works with Memcached 1.4.8
// and newer.
//
//	import _ "github.com/interlock-go/lock/memcachelock"
//
//	c, err := lock.Open(ctx, "memcached://cache1:11211,cache2:11211?ttl=30s")
//
// [New] uses a client of the caller, and never closes it.
//
// # URL
//
//	memcached://[user:password@]host[:port][,host[:port]...][/prefix][?param=value&...]
//	memcacheds://...                   the same over TLS
//	memcached:///path/to/socket[?prefix=prefix&param=value&...]     a Unix socket
//
// The default port is 11211, the default prefix "lock". User and password are those of the
// server's option --auth-file. The client library has no SASL. Parameters, beside those of
// package lock:
//
//	timeout=1s        limit to connect, and of each exchange, which may be repeated once
//	margin=10m        see [WithMargin]
//	connections=16    to a server, see [WithConnections]
//	tls=false         TLS with memcached://
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//
// Of several servers each key has one, by rendezvous hashing of the hosts as written in the
// URL. They share the load and are no replicas: all clients need the same list.
//
// # Guarantees
//
// At most one client holds a key while its server lives and does not evict it. A lock is one item,
// which is written with add and cas only: package record of package backend has the protocol. No
// clock of the server ends a lease, so that whole seconds, a late tick or a pause of the server
// do no harm. An acquire and a release take two round trips, or three if the record was there;
// a renewal takes two. Many renewals that are due together share both, with a client of Open for one server. If a connection
// ends or has no answer, its request is repeated once with a new one.
//
// Waiters poll; processes that wait take turns. The fencing token is counted in the item. If there is none, it begins with
// the microseconds of the Unix epoch of the client.
//
// # Limits
//
// A restart, flush_all or an eviction removes locks without notice: another client can acquire a
// lock until its holder renews, which fails then. Use Memcached for locks that save work, and
// check the token where two holders would do harm. Give locks a server of their own, with enough memory: with
// --disable-evictions a server that is full refuses renewals too.
//
// A minimum hold whose client was closed is measured by an item of its own.
//
// The server keeps an item for the TTL of its lease and the margin, and a free one for the margin.
// So the lock of a process that died is free for clients that wait for it after one TTL, and for a
// TryLock of a process that has not watched it after the TTL and the margin. Tokens rise over the
// removal of an item if the clocks of clients differ by less than the margin.
//
// Names with other characters than printable ASCII, and those too long for a key of 250 bytes, are
// hashed. There is no list of locks, no notification and no lock for readers or permits.
package memcachelock
