// Package redislock is the Redis driver of package lock. It works with Redis 6.2 or newer
// and with Valkey, standalone and behind Sentinel, and with clusters of Redis 7.0 or newer.
// Package redlock is the driver for a majority of independent masters (Redlock).
//
//	import _ "github.com/interlock-go/lock/redislock"
//
//	c, err := lock.Open(ctx, "redis://localhost:6379/0?ttl=30s&prefix=shop")
//
// [New] uses an existing client and never closes it.
//
// # URL
//
//	redis://[user:password@]host[:port][/db]
//	rediss://...                                   the same over TLS
//	redis://[user:password@]/path/of/a/socket[?db=0]     a Unix socket
//	redis+sentinel://[user:password@]sentinel[:port][,sentinel...]/master[/db]
//	redis+cluster://[user:password@]host[:port][,host...]
//
// Parameters, in addition to those of package lock:
//
//	prefix=lock            prefix of keys; if empty, the name of a lock is its key
//	dial_timeout=3s        limit of connecting
//	read_timeout=3s        limit of waiting for a reply, unless the context ends sooner
//	pool_size=n            connections; default 10 for each CPU
//	wait_replicas=0        replicas that must acknowledge a grant and a renewal (WAIT)
//	wait_timeout=1s        limit of waiting for them; less than read_timeout
//	eviction=refuse        accept: use a server that may evict locks
//	retention=24h          accepted as by other drivers, without effect: unused names leave nothing
//	tls=false              TLS with redis+sentinel and redis+cluster
//	tls_ca, tls_cert, tls_key, tls_server_name     names of PEM files, and a host name
//	sentinel_user, sentinel_password               credentials of the sentinels
//
// Opening loads the scripts, checks the version and the eviction policy of the server, and
// subscribes to the channel of this process.
//
// # Guarantees
//
// Mutual exclusion: a key has at most one holder, as long as the server keeps what it
// acknowledged. Waiters are served in the order of their arrival. An uncontended Lock and
// Unlock are one round trip each. A release grants the key to the first waiter and notifies
// it in the same script, so a contended cycle is two scripts, however many processes wait.
// Readers and permits wait in the same queue: what fits at its head is granted together.
// While a holder renews, one waiter of each process polls: the first of another process
// about once in a TTL, when the lease ends that it knows, and the others after one and a
// half. A renewal never shortens a lease. Only the clock of the server counts.
//
// The fencing token is the last token of any lock of the prefix plus one, or the clock of the server in microseconds
// if that is greater. It rises over a release, an expiry and a break. It also rises when the
// server loses its data, unless its clock was set back behind the last grant. A counter that
// is no integer below 2^53 counts as lost.
//
// # Keys
//
// The lock of name N is a plain string with an expiry. redis-cli shows it, and it excludes
// other clients that use SET NX.
//
//	prefix:N             owner@process token metadata, or for shares "@shared r" (readers) or
//	                     "@shared p101" (permits, 1 if it is held); expires with the last lease
//	{prefix:N}:q         sorted set, the queue: owner@process ttl metadata, with :weight/capacity
//	                     after the ttl of a share; by the time of arrival
//	{prefix:N}:h         hash, the holders of shares by owner: owner@process
//	                     token:weight/capacity:slots: metadata; its field s is what is known of processes
//	{prefix:N}:e         sorted set, the ends of the leases of shares
//	{prefix:}:t          the last fencing token of the prefix; in a cluster one for each slot
//	{prefix:N}:x:owner   tombstone: refuses late requests of an abandoned attempt
//
// lua/state.lua has the details. Times are those of the server, in microseconds.
//
// The key of a name that contains a brace or begins with a percent sign has a percent sign
// and the name with %, { and } percent-encoded. All clients that share a lock must use the
// same prefix: clients whose prefixes make the same key exclude but do not notify each other.
//
// A foreign client that holds the key is polled at least once a second. A key of another
// type causes an error that names the key and the type, in the place of the lock always, in that
// of the queue, the holders or the ends if a request needs it. The driver never changes it. The
// fence counter is the exception: it is replaced.
//
// # Permissions
//
// A user needs these permissions (with another prefix for "lock"; with an empty prefix ~*
// and &@*, in a cluster &{*):
//
//	ACL SETUSER app on >password resetkeys resetchannels -@all ~lock:* ~{lock:* &lock:*
//	  +evalsha +eval +script|load +get +set +del +exists +pttl +pexpire +type +time
//	  +hget +hset +hdel +hvals +zadd +zrem +zrange +zrangebyscore +zscore +zcard +publish +subscribe +pubsub|numsub
//
// and for some features
//
//	+info                                   to check version and eviction policy; otherwise there is a caveat
//	+ping, +scan                            for Ping, and for List
//	+wait                                   with wait_replicas
//	+select                                 with another database than 0
//	&{lock:* +spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub +cluster|slots +cluster|shards    in a cluster
//
// # Connections
//
// A request that gets no reply may mean that a router forgot its connection. A client that was opened from a URL then
// uses none of the connections that were idle when the request was sent, and sends the next request over a new one. So
// it costs one read_timeout, whatever the size of the pool. The subscription is checked at the same time, and replaced
// if nothing arrives within 2.5 s. A server that replies READONLY, LOADING or MASTERDOWN executed nothing. No
// connection to it is used again, and the request is sent once more over a new one, because the name may belong to
// another server by now. This needs that go-redis checks a connection before its use, which it does not on Windows.
//
// The connections of a client that is passed to [New] are its own: each dead one costs one request its timeout. The
// subscription of such a client is checked in the same way.
//
// # Limits
//
// The Caveats of [Backend.Capabilities] list them. Redis replicates asynchronously, so a
// failover, or a restart without the append-only file, may forget a grant and let a second
// client hold the lock; a step of the server's clock forward ends leases early. Only a check
// of the fencing token at the resource excludes such a holder. docs/backends/redis.md says
// what each mode promises, and what happens at each kind of failure.
//
// While a slot of a cluster migrates key by key, the server refuses scripts whose keys are
// not all on one side (TRYAGAIN). A lock in that slot is renewed, by its own key alone, but
// cannot be acquired, released or handed over until the migration ends. A release is repeated
// for 5 s here, and by package lock until the lease ends. An Acquire is repeated for a TTL and
// then returns the error of the server.
//
// With eviction=accept the server may evict a queue, so waiters have no order and are not notified. They find a
// free lock when they poll, after one and a half times the lease that they knew of. If the counter is evicted,
// tokens rise while the clock is right.
//
// An error inside a script, such as a missing permission, is ErrUncertain, because commands
// before it were executed. The retries of go-redis are disabled: a request without a reply
// is ErrUncertain, and package lock abandons its attempt. A proxy that repeats requests
// breaks this. A request that was still waiting for a connection is NotExecuted.
//
// # Protocol
//
// The hand-off by notification is this library's own design, on the base that the Redis
// documentation recommends for a single instance: SET NX PX with a random value that is
// compared before each change.
package redislock
