// Package redislock is the Redis driver of package lock. It works with Redis 6.0
// or newer and with Valkey, standalone and behind Sentinel, with clusters of
// Redis 7.0 or newer, and with several independent masters of which a majority has
// to agree (Redlock).
//
//	import _ "github.com/interlock-go/lock/redislock"
//
//	c, err := lock.Open(ctx, "redis://localhost:6379/0?ttl=30s&prefix=shop")
//
// A client of one's own is passed in with [New]; it is never closed.
//
// # URL
//
//	redis://[user:password@]host[:port][/db]
//	rediss://...                                   the same over TLS
//	redis+sentinel://[user:password@]sentinel[:port][,sentinel...]/master[/db]
//	redis+cluster://[user:password@]host[:port][,host...]
//	redlock://[user:password@]host[:port],host,host[,host...][/db]
//
// Parameters, beside those of package lock:
//
//	prefix=lock            what stands before a name in its key; empty: the name is the key
//	dial_timeout=3s        to connect
//	read_timeout=3s        for an answer, where a context does not end sooner
//	pool_size=n            connections; 10 for each CPU if not given
//	wait_replicas=0        replicas that must acknowledge a grant and a renewal (WAIT)
//	wait_timeout=1s        how long they may take; less than read_timeout
//	eviction=refuse        accept: use a server that may evict locks
//	tls=false              TLS with redis+sentinel, redis+cluster and redlock
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//	sentinel_user, sentinel_password               if the sentinels want their own
//
// Opening loads the scripts, looks at the server's version and eviction policy,
// and subscribes to the channel on which this process is told of its turn.
//
// and with redlock, where wait_replicas has no place:
//
//	node_timeout=500ms     for one node, before the others decide without it; a quarter of the TTL at most
//	restart_delay=5m       how long a node that came back without its memory has no vote, and the longest TTL
//	durable=false          every node keeps over a restart all that it acknowledged (appendfsync always)
//
// # Guarantees
//
// At most one holder of a key as long as the server keeps what it acknowledged.
// Waiters are served in the order of their arrival. An uncontended lock and unlock
// are one round trip each. Whoever unlocks makes the next waiter the holder in the
// same step and tells it, so a contended cycle is two scripts at the server
// however many wait. An idle waiter asks at most once in a TTL of its holder: the
// first in the queue is told of each renewal, and asks when the lease ends without
// one. A renewal never shortens a lease. Only the server's clock decides.
//
// The fencing token is the greater of the last one plus one and the server's clock
// in microseconds. It rises over a release, an expiry, a break, and over a server
// that lost its data, unless that server's clock was set back behind the last grant.
// A counter that somebody else made unusable (no number below 2^53) counts as lost.
//
// # At the server
//
// The lock of the name N is a plain string with an expiry, so that redis-cli shows
// it, and any other client that uses SET NX excludes us and is excluded:
//
//	prefix:N             owner@process metadata      PX the TTL
//	{prefix:N}:q         sorted set, the queue
//	{prefix:N}:f         the fencing token, kept a day beyond its last use
//	{prefix:N}:x:owner   refuses late requests of an attempt that was abandoned
//
// A name with a brace, or that begins with a percent sign, is written as a percent
// sign and the name with %, { and } percent-encoded. Every other name stays as it
// is. All who share a lock must use the same prefix: with different ones that
// make the same key they exclude each other, but do not wake each other.
//
// A client of another kind that holds the key is waited for like any other, by
// asking once a second at least. A key of another type is an error that names the
// type, and is left alone.
//
// # Permissions
//
// A user needs no more than this (with another prefix for "lock"; with an empty
// prefix ~* and &@*, in a cluster &{*):
//
//	ACL SETUSER app on >password resetkeys resetchannels -@all ~lock:* ~{lock:* &lock:*
//	  +evalsha +eval +script|load +get +getrange +set +del +exists +pttl +pexpire +pexpireat +type +time
//	  +zadd +zrem +zrange +zscore +publish +subscribe +pubsub|numsub
//
// and in addition
//
//	+info                                   to check version and eviction policy; else a caveat says so
//	+ping, +scan                            for Ping, and for List
//	+wait                                   with wait_replicas
//	+select                                 with another database than 0
//	&{lock:* +spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub +cluster|slots +cluster|shards    in a cluster
//
// # Traps
//
// Redis replicates asynchronously. A replica that is promoted before it received a
// grant does not know it, and two may hold the lock until the first one's lease
// ends. So may they after a restart without the append-only file (appendonly yes,
// and appendfsync always to be sure). wait_replicas makes that less likely and is
// no consensus. Only a check of the token at the resource is proof against it.
//
// A server that evicts keys when its memory is full evicts locks; such a server is
// refused unless that is accepted. Set maxmemory-policy noeviction.
//
// The server counts leases on its clock. A step forward ends them early by as much,
// before their holders know, and two may then hold one; a step back makes them last
// longer. Let the server's clock be slewed, and never stepped.
//
// A waiter whose connection breaks is skipped and loses its place. A subscription
// that looks alive and delivers nothing (the server hangs) is noticed when a waiter
// asks and finds itself passed over, and is then made anew. One at a server that is
// no longer the master is noticed when the new one has something to tell, and with
// redis+sentinel as soon as a sentinel says so.
//
// While a slot of a cluster migrates by the moving of its keys one by one, a script
// whose keys are not all on one side is refused (TRYAGAIN), and some of ours never
// exist at all. Until the migration ends a lock in that slot is renewed, by its own
// key alone, and neither taken nor released nor handed over: a release is repeated
// for 5 s, and by package lock until the lease has run out; who waits, or asks to
// wait, does so for a TTL and then has the server's error.
//
// An error in the middle of a script (a permission that is missing) is reported as
// uncertain, since what came before it was done.
//
// Renewals of many leases of a process go out in one pipeline; not in a cluster, and
// not with Redlock.
//
// The go-redis client's own retries do not apply: a request whose answer was lost
// is reported as uncertain, and what may remain of it is cleaned up. A proxy that
// repeats requests breaks this.
//
// # Redlock
//
// [NewRedlock] and redlock:// send the same scripts to all nodes at once, and a
// majority decides. A grant lasts as long as a majority is certain to keep it. At most
// one holds a lock while no more than a minority of the nodes stop, are cut off or lose
// their memory within a TTL, and their clocks run at the same rate. Each node hands
// over by itself to the first in its queue, and who has heard from a majority holds:
// one round trip after the unlock. Places in the queue are by the nodes' clocks.
//
// A node that lost its memory, or a part of it, in a restart has no vote for
// restart_delay, so that it votes no lock away. It is known by a marker, the key
// {prefix:}:born, which every granting script compares with the server's run id; that
// needs +info. A new set of nodes is ready at once if all of them answer at its first
// use. All who share locks must use the same restart_delay and durable.
//
// Errors name every node that failed. A Client with a logger logs the beginning and the
// end of a node's outage once each.
//
// # Protocol
//
// The queue with hand-off by push is this library's own design on the base that
// the Redis documentation recommends for a single instance: SET NX PX with a value
// of one's own that is compared before each change.
package redislock
