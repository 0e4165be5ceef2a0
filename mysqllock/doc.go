// Package mysqllock keeps locks in tables of a MySQL or MariaDB server.
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
// It needs MySQL 8.0 or MariaDB 10.6.
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
//	create         true          create the tables and the procedures if they are missing
//	pool_size      10            maximum of connections for requests, beside two for events
//	retention      24h           clients delete the rows of a name that was not used for this long;
//	                             at least 1m; 0: never
//	notify         auto          off: waiters poll
//	dial_timeout   3s            of a new connection
//	timeout        5s            of a request, and of getting a connection for it
//	tls            false         true, or skip-verify
//	tls_ca, tls_cert, tls_key, tls_server_name     with tls, see package tlsurl
//
// A TTL is from 500 ms to 100 days.
//
// # The application's pool
//
// The connections need autocommit, no transaction_read_only and sql_big_selects, which are the defaults. [New] verifies
// that on one connection and names the setting that it refuses. Other settings do not matter: the isolation level,
// sql_mode, sql_select_limit, completion_type, sql_safe_updates, time zones, clientFoundRows, parseTime and
// interpolateParams. One connection is enough, to poll. With four, the server wakes waiters, over one that the driver
// keeps, on MariaDB two.
//
// A request that was sent is not cancelled, and its connection waits for the reply when the caller has returned: a server
// that is slow would execute it all the same. When a request had no reply in time, the driver closes the idle connections
// of the pool that do not answer a ping within a second; and two seconds later the connection of the request, if the
// server replies at once over another one.
//
// # Protocol
//
// The driver is a queue.Service of package backend/queue: each operation is one call of a stored procedure, which is
// one transaction at READ COMMITTED. It locks the row of the lock first, and decides by the server's clock. The row
// has the exclusive holder; waiters, readers and holders of permits are rows of a second table. The row of the lock
// stays for the retention, because the fencing token is in it: the server's time in microseconds, or the last token
// plus one if that is greater.
//
// A procedure that notifies a process writes a row of a third table, and ends the sleep of the connection by which
// that process reads its events: KILL QUERY IS_USED_LOCK('interlock.<process>'). Waiters poll
//   - with notify=off, and in a pool of fewer than four connections,
//   - in a cluster in which several nodes accept writes,
//   - behind a proxy by which a connection does not find the named lock of another one.
//
// The names of the procedures have a hash of their text, so two versions of this package can use one table.
//
// # Permissions
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.interlock TO 'app'@'%';
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.interlock_places TO 'app'@'%';
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.interlock_events TO 'app'@'%';
//	GRANT EXECUTE ON app.* TO 'app'@'%';
//
// To create tables and procedures, the driver also needs CREATE and CREATE ROUTINE, and to drop procedures of
// versions that are not used any more ALTER ROUTINE. [Schema] returns the statements for a migration instead.
//
// # Guarded writes
//
// [Backend.Guard] verifies in a transaction of the application, on the same server, that the lock is still held, so
// that a stale holder cannot commit. On another server compare the token: UPDATE … SET fence = ? WHERE id = ? AND
// fence <= ?.
package mysqllock
