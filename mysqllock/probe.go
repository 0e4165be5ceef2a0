package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// server is what probe finds out about the server.
type server struct {
	mariaDB      bool
	multiPrimary bool // several nodes accept writes: a named lock is known to one of them only
	readOnly     bool // it accepts no writes now
	flush        int  // innodb_flush_log_at_trx_commit
}

// probe reads the settings of the server, on one connection, and prepares the tables and the procedures.
func (s *service) probe(ctx context.Context) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var version string
	var have session
	read := func(prefix string) error {
		return conn.QueryRowContext(ctx, "SELECT @@autocommit, @@"+prefix+"_read_only, @@sql_big_selects, "+
			"@@log_bin AND @@binlog_format='STATEMENT', @@innodb_flush_log_at_trx_commit, VERSION()").
			Scan(&have.autocommit, &have.readOnly, &have.bigSelects, &have.statementLog, &s.flush, &version)
	}
	if err = read("transaction"); number(err) == errUnknownVariable {
		err = read("tx") // MariaDB before 11.1
	}
	if err != nil {
		return failure(err)
	}
	if err = have.check(); err != nil {
		return err
	}
	s.mariaDB = strings.Contains(strings.ToLower(version), "mariadb")
	const several = "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on','group_replication_group_name') " +
		"AND Value NOT IN ('','OFF')"
	if s.multiPrimary, err = hasRows(ctx, conn, several); err != nil {
		return err
	}
	return s.prepare(ctx, conn)
}

// session are settings that the statements depend on. Those of the connections that Open makes are as they should be.
// The others matter no more: a procedure is executed with the sql_mode with which it was created, and
// sql_select_limit does not apply in it.
type session struct {
	autocommit, readOnly, bigSelects, statementLog bool
}

func (s session) check() error {
	refuse := func(setting, why string) error {
		return fmt.Errorf("%w connections: %s; %s", backend.ErrInvalid, setting, why)
	}
	switch {
	case !s.autocommit:
		return refuse("autocommit is off", "a lock must be committed at once")
	case s.readOnly:
		return refuse("transaction_read_only is on", "a lock is a write")
	case !s.bigSelects:
		return refuse("sql_big_selects is off", "the server would refuse statements by an estimate (max_join_size)")
	case s.statementLog:
		return refuse("binlog_format is STATEMENT",
			"the procedures run at READ COMMITTED, which the server refuses with that")
	}
	return nil
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
