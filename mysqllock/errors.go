package mysqllock

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
)

// Numbers of errors of MySQL and MariaDB.
const (
	errRecordChanged   = 1020
	errTooManyConns    = 1040 // max_connections
	errDatabaseDenied  = 1044
	errAccessDenied    = 1045
	errNoDatabase      = 1046
	errShutdown        = 1053
	errSyntax          = 1064
	errTableDenied     = 1142
	errColumnDenied    = 1143
	errNoThread        = 1094
	errNoSuchTable     = 1146
	errCommit          = 1180
	errUnknownVariable = 1193
	errTooManyOfUser   = 1203 // max_user_connections
	errLockWait        = 1205
	errDeadlock        = 1213
	errUserLimit       = 1226 // MAX_USER_CONNECTIONS of the user
	errPrivilege       = 1227
	errReadOnly        = 1290 // read_only, super_read_only
	errProcedureExists = 1304
	errNoProcedure     = 1305
	errInterrupted     = 1317
	errProcedureDenied = 1370
	errReadOnlyTx      = 1792
	errReadOnlyEngine  = 1836
	errKilled          = 1927
	errTimeLimit       = 1969 // MariaDB
	errTimeLimitMySQL  = 3024
)

// number returns the number of an error of the server, or 0.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// rolledBack reports whether the server rolled the statement back because of another
// transaction: by a deadlock, or by innodb_snapshot_isolation of MariaDB, which at
// SERIALIZABLE also refuses single statements.
func rolledBack(err error) bool {
	n := number(err)
	return n == errDeadlock || n == errRecordChanged
}

// readOnly reports whether the server refused the statement, or the commit, because it does not accept writes.
func readOnly(err error) bool {
	n := number(err)
	return n == errReadOnly || n == errReadOnlyTx || n == errReadOnlyEngine
}

// serverFull reports whether the server refused another connection.
func serverFull(err error) bool {
	n := number(err)
	return n == errTooManyConns || n == errTooManyOfUser || n == errUserLimit
}

// relayed reports whether n is an error of the client library, which a proxy returns as one
// of the server: the proxy's connection to the server failed.
func relayed(n uint16) bool { return n >= 2000 && n < 3000 }

// classify marks the error of a statement as ErrUncertain or as not executed.
func classify(err error) error {
	switch n := number(err); n {
	case 0:
		return mark(err, !errors.Is(err, driver.ErrBadConn)) // of ErrBadConn nothing was written
	case errCommit, errShutdown, errInterrupted, errKilled, errTimeLimit, errTimeLimitMySQL:
		return mark(err, true)
	default:
		return mark(err, relayed(n))
	}
}

func mark(err error, unknown bool) error {
	switch err = failure(err); {
	case err == nil:
		return nil
	case unknown:
		return backend.Uncertain(err)
	}
	return backend.NotExecuted(err)
}

// failure adds the name of the driver, and a hint for well-known errors.
func failure(err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch number(err) {
	case errTableDenied, errColumnDenied, errDatabaseDenied, errAccessDenied, errProcedureDenied:
		hint = " (the documentation of package mysqllock lists the privileges that it needs: Permissions)"
	case errNoSuchTable:
		hint = " (the lock table was dropped)"
	case errNoDatabase:
		hint = " (name a database in the URL's path, or in table=database.table)"
	case errReadOnly, errReadOnlyTx, errReadOnlyEngine:
		hint = " (this server is read-only; locks need the primary)"
	case errLockWait:
		hint = " (another transaction keeps the row of the lock locked)"
	case errTooManyConns, errTooManyOfUser, errUserLimit:
		hint = " (lower pool_size, or raise the limit of the server)"
	}
	if strings.HasPrefix(err.Error(), "mysql: ") || strings.HasPrefix(err.Error(), "mysql at ") {
		return err
	}
	return fmt.Errorf("mysql: %w%s", err, hint)
}
