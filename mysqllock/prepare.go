package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// prepare checks the tables and the procedures, and creates what is missing. A user who may read only, and a
// read-only server, are good enough to inspect.
func (s *service) prepare(ctx context.Context, conn *sql.Conn) error {
	missing, err := s.checkTables(ctx, conn)
	if err != nil {
		return err
	}
	if missing != "" {
		if err := s.createTables(ctx, conn, missing); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, s.markUsed())
	switch number(err) {
	case errTableDenied, errColumnDenied, errAccessDenied:
		s.denied = failure(err)
		return nil
	case errReadOnly, errReadOnlyTx, errReadOnlyEngine:
		s.readOnly = true
		return nil
	}
	if err != nil {
		return failure(err)
	}
	n, err := s.countProcedures(ctx, conn)
	switch {
	case err != nil || n == len(operations):
		return err
	case !s.opt.create:
		return fmt.Errorf("%w: procedures %s are missing, or the user may not call them: run what mysqllock.Schema or "+
			"lockctl schema prints, GRANT EXECUTE, or allow create=true", backend.ErrInvalid, s.schema.procedure("..."))
	}
	if err = s.create(ctx, conn); err != nil {
		return err
	}
	if n, err = s.countProcedures(ctx, conn); err == nil && n < len(operations) {
		err = fmt.Errorf("%w: the user may not call the procedures %s: GRANT EXECUTE",
			backend.ErrInvalid, s.schema.procedure("..."))
	}
	return err
}

// markUsed is a statement that records that this version of the procedures is in use.
func (s *service) markUsed() string {
	return s.schema.sql(fmt.Sprintf(
		"INSERT INTO `interlock` (name, expires) VALUES (%s, %s) ON DUPLICATE KEY UPDATE expires = %[2]s",
		lit(versionName+s.schema.version), clock))
}

const (
	versionName = "\x00" // and the version: the name of a row that has when a version of the procedures was used last
	turnName    = "\x00turn"
	clock       = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
)

// countProcedures returns how many of the procedures are there that the user may call.
func (s *service) countProcedures(ctx context.Context, conn *sql.Conn) (n int, err error) {
	err = conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = "+
		s.database()+" AND LEFT(routine_name, 10) = 'interlock_' "+
		"AND RIGHT(routine_name, 13) = '_"+s.schema.version+"'").Scan(&n)
	return n, failure(err)
}

// database is an expression for the database of the tables.
func (s *service) database() string {
	if s.schema.table.database == "" {
		return "DATABASE()"
	}
	return "CONVERT(" + lit(s.schema.table.database) + " USING utf8mb4)"
}

// create creates the procedures that are missing. Other processes may do so at the same time.
func (s *service) create(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "SET @interlock_mode = @@sql_mode, SESSION sql_mode = "+mode)
	for _, q := range s.schema.procedures() {
		if err == nil {
			if _, err = conn.ExecContext(ctx, q); number(err) == errProcedureExists {
				err = nil
			}
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "SET SESSION sql_mode = @interlock_mode")
	}
	switch number(err) {
	case 0:
		return failure(err)
	case errDatabaseDenied, errAccessDenied, errProcedureDenied, errPrivilege:
		return fmt.Errorf("creating procedures: %w: GRANT CREATE ROUTINE, EXECUTE ON the database, "+
			"or run what mysqllock.Schema or lockctl schema prints", failure(err))
	case errSyntax:
		return fmt.Errorf("creating procedures: %w (they need MySQL 8.0 or MariaDB 10.6)", failure(err))
	}
	return fmt.Errorf("creating procedures: %w", failure(err))
}

func (s *service) createTables(ctx context.Context, conn *sql.Conn, missing string) error {
	const otherwise = "run what mysqllock.Schema or lockctl schema prints"
	if !s.opt.create {
		return fmt.Errorf("%w: table %s does not exist: %s, or allow create=true", backend.ErrInvalid, missing, otherwise)
	}
	for _, q := range s.schema.tables() {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("creating table %s (or %s): %w", missing, otherwise, failure(err))
		}
	}
	missing, err := s.checkTables(ctx, conn)
	if err == nil && missing != "" {
		err = fmt.Errorf("table %s does not exist", missing)
	}
	return err
}

// checkTables checks the versions of the tables. It returns the name of the first one that is missing.
func (s *service) checkTables(ctx context.Context, conn *sql.Conn) (missing string, err error) {
	t := s.schema.table
	for _, t := range []table{t, t.with("_places"), t.with("_events")} {
		switch err = s.checkTable(ctx, conn, t); {
		case !errors.Is(err, sql.ErrNoRows):
		case missing == "":
			missing, err = t.String(), nil
		default:
			err = nil
		}
		if err != nil {
			return "", err
		}
	}
	return missing, nil
}

// checkTable returns sql.ErrNoRows if there is no such table.
func (s *service) checkTable(ctx context.Context, conn *sql.Conn, t table) error {
	var engine, found string
	q := fmt.Sprintf( //nolint:gosec // the names are literals
		"SELECT COALESCE(engine,''), COALESCE(table_comment,'') FROM information_schema.tables "+
			"WHERE table_schema = %s AND table_name = CONVERT(%s USING utf8mb4)", s.database(), lit(t.name))
	err := conn.QueryRowContext(ctx, q).Scan(&engine, &found)
	if errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err != nil {
		return failure(err)
	}
	_, version, ours := strings.Cut(found, ", schema ")
	switch {
	case !ours || !strings.HasPrefix(found, "interlock "):
		return fmt.Errorf("%w: table %s is not a lock table (its comment is %.60q); choose another with ?table=",
			backend.ErrInvalid, t, found)
	case version != fmt.Sprint(schemaVersion):
		return fmt.Errorf("%w: table %s has schema %.20q, this version of the driver wants %d: "+
			"choose another with ?table=, or drop it when no process uses it",
			backend.ErrInvalid, t, version, schemaVersion)
	case !strings.EqualFold(engine, "InnoDB"):
		return fmt.Errorf("%w: table %s has engine %s, want InnoDB", backend.ErrInvalid, t, engine)
	}
	return nil
}
