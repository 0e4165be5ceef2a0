// Package mysqllock keeps locks in a table of a MySQL or MariaDB server.
//
//	import _ "github.com/interlock-go/lock/mysqllock"
//
//	c, err := lock.Open(ctx, "mysql://app:secret@db:3306/app?table=interlock&ttl=30s")
//
// or, with the application's own pool, which the driver never closes:
//
//	b, err := mysqllock.New(db)
//	c, err := lock.New(b)
//
// # URL
//
//	mysql://[user[:password]@]host[:port]/database[?parameters]
//
// mariadb:// is the same. A Unix socket is the path of a URL without a host:
//
//	mysql://[user[:password]@]/run/mysqld/mysqld.sock?db=database
//
// The parameters, beside those of package lock:
//
//	db                           the database, with a Unix socket
//	table          interlock     the table, or database.table
//	prefix         lock          separates applications that share the table
//	create         true          create the table if it is missing
//	pool_size      10            maximum of connections for statements
//	retention      24h           clients delete the rows of a name that was not used for this long;
//	                             at least 1m; 0: never
//	notify         auto          off: waiters poll
//	notify_conns   8             maximum of connections that wait for named locks, beside
//	                             pool_size and up to 5 that own named locks
//	dial_timeout   3s            of a new connection
//	timeout        5s            of a statement, and of getting a connection for it
//	tls            false         true, or skip-verify
//	tls_ca, tls_cert, tls_key, tls_server_name     with tls, see package tlsurl
//
// A TTL is from 500 ms to 100 days.
//
// # Protocol
//
// Each lock has a row with its holder and its expiry on the server's clock. Each waiter has a row, too.
// The row of the lock stays for the retention, because the fencing token is in it: the server's time
// in microseconds, or the last token plus one if that is greater. Each change of the queue is one
// transaction, sent in one packet, that locks the row of the lock first.
//
// A release grants the lock to the first waiter, with a provisional lease of at most 3 s. If the new
// holder does not renew it, all waiters of its process are removed. If the outcome of an attempt is
// unknown, Abandon writes a tombstone, which refuses a later request of that attempt.
//
// Each reader and each holder of permits has a row, which its renewals change. The row of the lock
// then says that the lock is shared. When a lease ends, one packet admits the waiters that fit, in
// order. If the first waiter does not fit, the waiters behind it wait, too. One of them that asks for a
// share sets a deadline of 3 s in the row of the first waiter, and the process of the first waiter clears
// it. If the deadline passes, all waiters of that process are removed. These packets run at READ
// COMMITTED. They need MySQL 8.0 or MariaDB 10.6, and no binary log of statements; elsewhere the driver
// supports neither readers nor permits.
//
// # Wake-up
//
// The server wakes waiters. Each holder and each waiter owns a named lock (GET_LOCK) on its owner id.
// The first waiter of a process blocks on the named lock of its predecessor, on one connection for
// each key. The packet that releases the key also releases that named lock.
//
// Named locks only wake; the row decides which client holds the key. If a named lock is lost, waiters
// poll the row every 5 to 250 ms. Waiters also poll
//   - when all notify_conns connections wait for other keys,
//   - for permits that others hold,
//   - in a pool of fewer than four connections, or without multiStatements,
//   - in a cluster in which every node accepts writes.
//
// # Permissions
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.interlock TO 'app'@'%';
//
// The driver also needs CREATE to create the table; [Schema] returns the statement for a migration
// instead. Named locks need no privilege. [Backend.Break] wakes waiters at once if the user may end
// connections of the holder's user.
//
// # Guarded writes
//
// [Backend.Guard] verifies in a transaction of the application, on the same server, that the lock is
// still held, so that a stale holder cannot commit. On another server compare the token:
// UPDATE … SET fence = ? WHERE id = ? AND fence <= ?.
package mysqllock
