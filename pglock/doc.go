// Package pglock is the PostgreSQL driver of package lock, for PostgreSQL 14 or newer.
//
//	import _ "github.com/interlock-go/lock/pglock"
//
//	c, err := lock.Open(ctx, "postgres://app:secret@db:5432/shop?ttl=30s")
//
// [New] takes a pool of the application and never closes it.
//
// # URL
//
//	postgres://[user[:password]@]host[:port][,host[:port]...]/database
//	postgresql://...                               the same
//
// Parameters, besides those of package lock:
//
//	table=interlock        table or schema.table
//	prefix=lock            prefix of names in the table
//	create=true            create the table if it is missing; else see Schema
//	listen=true            false: poll; host[:port][,...]: the server itself, behind a pooler
//	pool_size=n            connections; default 4, or the number of CPUs if greater
//	dial_timeout=3s        to connect
//	timeout=5s             for a reply, if the context does not end sooner
//	sslmode=prefer         disable, allow, prefer, require, verify-ca, verify-full
//	sslrootcert, sslcert, sslkey, sslsni           as for libpq
//	application_name       as the server shows it
//	target_session_attrs   any; read-write with several hosts
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
// The fencing token is the greater of the last token plus one and the clock of the
// server in microseconds.
//
// # Notifications
//
// The first waiter of a process opens one more connection, which listens. If that is
// lost, waiters poll, and package lock logs it; else a waiter polls about once in a TTL.
//
// Behind a transaction pooler, which the driver recognizes, no statements are prepared
// and waiters poll at intervals of up to half a second, unless the parameter listen has
// the address of the server itself.
//
// # The table
//
// The table has a row for each name that was ever used, with the last token, the holder
// and the queue. [Schema] returns the statements that create it; [Backend.Sweep] deletes
// unused rows. With [Backend.Guard] a transaction of the application in the same
// database depends on the lock.
package pglock
