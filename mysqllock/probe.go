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
	var isolation, version string
	var database sql.NullString
	var s session
	read := func(prefix string) error {
		return conn.QueryRowContext(ctx, "SELECT @@autocommit, @@sql_mode, @@"+prefix+"_isolation, @@"+prefix+"_read_only, @@sql_select_limit, @@sql_big_selects, "+
			"@@innodb_flush_log_at_trx_commit, VERSION(), DATABASE()").
			Scan(&s.autocommit, &s.mode, &isolation, &s.readOnly, &s.selectLimit, &s.bigSelects, &b.flush, &version, &database)
	}
	if err = read("transaction"); number(err) == errUnknownVariable {
		err = read("tx") // MariaDB before 11.1
	}
	if err != nil {
		return info, failure(err)
	}
	if err = s.check(); err != nil {
		return info, err
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

// session are settings of a connection that the statements depend on. Those of the connections that Open makes are as
// they should be.
type session struct {
	mode                             string
	autocommit, readOnly, bigSelects bool
	selectLimit                      uint64
}

func (s session) check() error {
	refuse := func(setting, why string) error {
		return fmt.Errorf("%w connections: %s; %s", backend.ErrInvalid, setting, why)
	}
	switch {
	case !s.autocommit:
		return refuse("autocommit is off", "a lock must be committed at once")
	case strings.Contains(s.mode, "SIMULTANEOUS_ASSIGNMENT"):
		return refuse("sql_mode has SIMULTANEOUS_ASSIGNMENT", "the statements rely on the standard order")
	case strings.Contains(s.mode, "EMPTY_STRING_IS_NULL"):
		return refuse("sql_mode has EMPTY_STRING_IS_NULL", "a free lock has an empty owner")
	case s.readOnly:
		return refuse("transaction_read_only is on", "a lock is a write")
	case s.selectLimit < leastSelectLimit:
		return refuse(fmt.Sprintf("sql_select_limit is %d", s.selectLimit), fmt.Sprintf("results have up to %d rows", leastSelectLimit))
	case !s.bigSelects:
		return refuse("sql_big_selects is off", "the server would refuse statements by an estimate (max_join_size)")
	}
	return nil
}

const leastSelectLimit = 1000000 // shared holders of a lock

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
