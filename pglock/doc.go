// Package pglock is the PostgreSQL driver of package lock. It works with
// PostgreSQL 14 or newer.
//
//	import _ "github.com/interlock-go/lock/pglock"
//
//	c, err := lock.Open(ctx, "postgres://app:secret@db:5432/shop?ttl=30s")
//
// A pool of one's own is passed in with [New]; it is never closed.
//
// # URL
//
//	postgres://[user[:password]@]host[:port][,host[:port]...]/database
//	postgresql://...                               the same
//
// Parameters, beside those of package lock:
//
//	table=interlock        table or schema.table
//	prefix=lock            what stands before a name in the table
//	create=true            make the table if it is missing; else see Schema
//	listen=true            false: ask instead; host[:port][,...]: the server itself, behind a pooler
//	pool_size=n            connections; 4, or one for each CPU, if not given
//	dial_timeout=3s        to connect
//	timeout=5s             for an answer, where a context does not end sooner
//	sslmode=prefer         disable, allow, prefer, require, verify-ca, verify-full
//	sslrootcert, sslcert, sslkey, sslsni           as for libpq
//	application_name       as the server shows it
//	target_session_attrs   any; read-write with several hosts
//
// The usual PG environment variables and the password file fill in what is not given.
//
// # Guarantees
//
// At most one holder of a key as long as the server keeps what it committed. Each
// operation is one statement, so one round trip, and so are many renewals that are due
// at once; no session and no transaction is kept open for a lock, so any connection may
// end at any time. Waiters are served in the order of their arrival. Whoever unlocks makes the next waiter the
// holder in the same statement, and tells its process by NOTIFY. Only the server's
// clock decides. Grants, renewals, breaks and hand-overs are committed to disk even where
// synchronous_commit is off by default; places in the queue and releases to nobody
// need not be.
//
// The first waiter of a process makes one more connection, which listens. An idle
// waiter asks about once in a TTL of its holder.
//
// The fencing token is the greater of the last one plus one and the server's clock
// in microseconds.
//
// # Poolers
//
// A transaction pooler in between is recognised: statements are then not prepared,
// and waiters ask at intervals of up to half a second, unless the parameter listen
// has the address of the server itself.
//
// # Guarded writes
//
// [Backend.Guard] makes a transaction of the application's own, in the same
// database, depend on the lock. Elsewhere compare the token.
//
// # The table
//
// There is a row for each name ever used, which holds the last token, the holder
// and the queue; [Backend.Sweep] deletes those long unused. [Schema] prints it.
package pglock
