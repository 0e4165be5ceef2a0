package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// serverInfo is what probe finds out about the server.
type serverInfo struct {
	database     string
	multiPrimary bool // several nodes accept writes: a named lock is known to one of them only
}

// probe reads the settings of the server, on one connection, and prepares the table. It sets
// b.lockingRead, b.multiStatements, b.mariaDB, b.flush and b.sharing.
func (b *Backend) probe(ctx context.Context) (info serverInfo, err error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return info, err
	}
	defer conn.Close()
	var mode, isolation, version string
	var database sql.NullString
	var autocommit int
	read := func(isolationVariable string) error {
		return conn.QueryRowContext(ctx, "SELECT @@autocommit, @@sql_mode, @@"+isolationVariable+", @@innodb_flush_log_at_trx_commit, VERSION(), DATABASE()").
			Scan(&autocommit, &mode, &isolation, &b.flush, &version, &database)
	}
	if err = read("transaction_isolation"); number(err) == errUnknownVariable {
		err = read("tx_isolation") // MariaDB before 11.1
	}
	if err != nil {
		return info, failure(err)
	}
	switch {
	case autocommit != 1:
		return info, fmt.Errorf("%w connections: autocommit is off; a lock must be committed at once", backend.ErrInvalid)
	case strings.Contains(mode, "SIMULTANEOUS_ASSIGNMENT"):
		return info, fmt.Errorf("%w connections: sql_mode has SIMULTANEOUS_ASSIGNMENT; the statements rely on the standard order", backend.ErrInvalid)
	}
	if strings.EqualFold(isolation, "READ-UNCOMMITTED") {
		b.lockingRead = " LOCK IN SHARE MODE"
	}
	b.mariaDB = strings.Contains(strings.ToLower(version), "mariadb")
	if info.database = b.table.database; info.database == "" {
		info.database = database.String
	}
	if info.multiPrimary, err = multiPrimary(ctx, conn); err != nil {
		return info, err
	}
	if b.multiStatements, err = multiStatements(ctx, conn); err != nil {
		return info, err
	}
	if b.sharing, err = sharing(ctx, conn); err != nil {
		return info, err
	}
	return info, b.prepare(ctx, conn)
}

// sharing reports whether the server has what the statements for shares need: table functions,
// window functions, and READ COMMITTED, which it refuses with a log of statements.
func sharing(ctx context.Context, conn *sql.Conn) (bool, error) {
	ok, err := hasRows(ctx, conn, "SELECT SUM(n) OVER () FROM JSON_TABLE('[0]','$[*]' COLUMNS (n FOR ORDINALITY)) j WHERE NOT (@@log_bin AND @@binlog_format='STATEMENT')")
	switch number(err) {
	case errSyntax:
		return false, nil
	case errUnknownVariable: // the server has no such log
		return hasRows(ctx, conn, "SELECT SUM(n) OVER () FROM JSON_TABLE('[0]','$[*]' COLUMNS (n FOR ORDINALITY)) j")
	}
	return ok, err
}

// multiPrimary reports whether the server is a node of Galera or of group replication.
func multiPrimary(ctx context.Context, conn *sql.Conn) (bool, error) {
	return hasRows(ctx, conn, "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on','group_replication_group_name') AND Value NOT IN ('','OFF')")
}

// multiStatements reports whether the connection accepts two statements in one packet.
func multiStatements(ctx context.Context, conn *sql.Conn) (bool, error) {
	_, err := hasRows(ctx, conn, "DO 0; SELECT 1")
	if number(err) == errSyntax {
		return false, nil
	}
	return err == nil, err
}

func hasRows(ctx context.Context, conn *sql.Conn, q string) (bool, error) {
	rows, err := conn.QueryContext(ctx, q)
	if err != nil {
		return false, failure(err)
	}
	defer rows.Close()
	found := rows.Next()
	return found, failure(rows.Err())
}
