// Package mysqllock keeps locks in a table of a MySQL or MariaDB server.
//
//	import _ "github.com/interlock-go/lock/mysqllock"
//
//	c, err := lock.Open(ctx, "mysql://app:secret@db:3306/app?table=interlock&ttl=30s")
//
// or, with the application's own pool, which is never closed:
//
//	b, err := mysqllock.New(db)
//	c, err := lock.New(b)
//
// # URL
//
//	mysql://[user[:password]@]host[:port]/database[?parameters]
//
// mariadb:// is the same. The parameters, beside those of package lock:
//
//	table          interlock     the table, or database.table
//	prefix         lock          separates applications that share the table
//	create         true          create the table if it is missing
//	pool_size      10            connections for statements, at most
//	bell           auto          off: waiters poll
//	bell_size      8             connections that wait for keys, at most, beside
//	                             pool_size and up to 5 that announce attempts
//	dial_timeout   3s            to connect
//	timeout        5s            of a statement, and of getting a connection for it
//	tls            false         true, or skip-verify
//	tls_ca, tls_cert, tls_key, tls_server_name
//
// # Protocol
//
// Each name has one row, which is never deleted, since the fencing token lives in
// it. All changes are single statements on one row by primary key, in autocommit:
// they cannot deadlock, and mean the same at every isolation level. Renewals that are
// due at once are one statement, which waits for no row. The row has
// the holder, its expiry on the server's clock, and the queue of those who wait.
// Whoever releases writes the next holder in the same statement, with a lease of
// at most 3 s, which the new holder renews. Tokens are the server's time in
// microseconds, or one more than the last if that is greater.
//
// Each attempt in a row has a named lock of the server (GET_LOCK) on its id, on a
// connection that it shares with others. Whoever is next in the queue blocks in the
// server on the name of the one before it, one connection for each key and process,
// and is woken by the packet that releases. Names are only a bell: if one is lost
// those who wait look at the row, at most each 10 to 250 ms. So do they if there are
// more keys than connections to wait for them, in a pool of fewer than four
// connections or without multiStatements, and in a cluster whose nodes all take
// writes.
//
// An attempt whose outcome is not known is abandoned with a mark in the row that
// refuses it if it arrives later.
//
// # Permissions
//
//	GRANT SELECT, INSERT, UPDATE ON app.interlock TO 'app'@'%';
//
// CREATE too if the driver is to create the table. [Schema] returns the statement
// for a migration. Named locks need no right; [Backend.Break] wakes waiters at once
// if it may end connections of the holder's user.
//
// # Guarded writes
//
// [Backend.Guard] verifies in the application's own transaction, on the same
// server, that the lock is still held, so that a stale holder cannot commit.
// Elsewhere compare the token: UPDATE … SET fence = ? WHERE id = ? AND fence <= ?.
package mysqllock
