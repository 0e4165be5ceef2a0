// Package pglock is the PostgreSQL driver of package lock, for PostgreSQL 14 or newer.
//
//	import _ "github.com/interlock-go/lock/pglock"
//
//	c, err := lock.Open(ctx, "postgres://app:secret@db:5432/shop?ttl=30s")
//
// [New] takes a pool of the application and never closes it. After a request without an answer the driver pings the idle
// connections of the pool, and closes those that do not answer; PrepareConn of the pool runs for each of them.
//
// # URL
//
//	postgres://[user[:password]@]host[:port][,host[:port]...]/database
//	postgres://[user[:password]@]/database?host=/directory     of a Unix socket
//	postgres://[user[:password]@]/directory?db=database        the same; /directory may also name the socket itself
//	postgresql://...                               the same
//
// Parameters, besides those of package lock:
//
//	table=interlock        table or schema.table
//	prefix=lock            prefix of names in the table
//	create=true            create the tables and functions that are missing; else see Schema
//	listen=true            false: poll; host[:port][,...]: the server itself, behind a pooler
//	listen_always=false    true: listen from the beginning, so that a break is pushed; see WithListenAlways
//	pool_size=n            connections; default 4, or the number of CPUs if greater
//	dial_timeout=3s        to connect
//	timeout=5s             for a reply, if the context does not end sooner; the connection stays if the server is only slow
//	retention=24h          after which time without use clients remove the row of a name; at least 1m; 0: never
//	sslmode=prefer         disable, allow, prefer, require, verify-ca, verify-full
//	sslrootcert, sslcert, sslkey, sslsni           as for libpq
//	application_name       as the server shows it
//	target_session_attrs   any; read-write with several hosts
//	host, port=5432, db    of a Unix socket, which is host/.s.PGSQL.port
//
// The PG environment variables and the password file supply missing values.
//
// # Guarantees
//
// At most one client holds a key, as long as the server keeps what it committed. Only
// the clock of the server decides when a lease ends. Grants, renewals, breaks and
// hand-overs are on disk before they are reported, also with synchronous_commit off.
// Each operation is one statement and one round trip. A lock keeps no connection.
//
// Waiters are served first come, first served. The statement that unlocks makes the
// first waiter the holder and notifies its process (NOTIFY).
//
// Readers and permits of semaphores wait in the same queue. The statement that unlocks
// grants the first waiter and those behind it, as long as each fits beside the holders.
//
// A process is not taken for dead because its connections have ended. A waiter of a dead process delays the others by up
// to 3 s at its turn, and those of each further such process behind it by 0.75 s.
//
// The fencing token is the greater of the last token plus one and the clock of the
// server in microseconds.
//
// # Notifications
//
// The first waiter of a process opens one more connection, which listens. It ends a minute
// after the last wait. If it is lost, waiters poll, and package lock logs it; else
// the first waiter of a process polls about once in a TTL. A break notifies the process of the
// holder if it listens; with the parameter listen_always it always does.
//
// Behind a transaction pooler, which the driver recognizes, no statements are prepared
// and waiters poll at intervals of up to half a second, unless the parameter listen has
// the address of the server itself.
//
// # Tables and functions
//
// The first table, interlock, has a row for each name that was used within the retention, with the last token, the
// exclusive holder, and what is known of the queue. The second one, interlock_places, has a row for each waiter, for each
// holder of a share, and for a while for each attempt whose late requests are refused. Times are microseconds since 1970.
//
// Each operation calls a PL/pgSQL function, which locks the row of the lock first. The names of functions end with the
// hash of their text, so clients of several versions of this package share the tables. Clients drop functions that none
// has used for the retention, a day at least.
//
// The user needs SELECT, INSERT, UPDATE and DELETE on both tables, USAGE on their schema, and EXECUTE on the functions,
// which is PUBLIC by default. [Schema] returns the statements that create all of them; without [WithoutCreate] the user
// needs CREATE on the schema for what is missing.
//
// With [Backend.Guard] a transaction of the application in the same
// database depends on the lock.
package pglock
