package pglock

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// setUp finds or creates the tables and the functions, checks that the tables can be read, and finds out whether
// notifications arrive.
func (s *service) setUp(ctx context.Context) error {
	complete, err := s.probe(ctx)
	switch {
	case err != nil:
		return err
	case !complete && !s.opt.create:
		code := "42P01"
		if _, err := s.exec(ctx, s.sql.columns); err == nil {
			code = noFunction
		}
		return fmt.Errorf("postgres: %s", s.hint(code))
	case !complete:
		if err = s.create(ctx, s.sql.schema+s.sql.functions); err == nil {
			_, err = s.probe(ctx)
		}
	}
	if err == nil {
		_, err = s.exec(ctx, s.sql.columns) // reads no row; needs all columns and SELECT
	}
	if err != nil {
		return err
	}
	if _, err := s.exec(ctx, s.sql.used, s.sql.version); err != nil && sqlState(err) != "42501" {
		return err // a role that may only read can still inspect
	}
	if s.opt.always {
		return s.startListening(ctx)
	}
	return s.tryListening()
}

// found is what a probe finds.
type found struct {
	table               int64  // 0: none
	comment             string // of the table
	functions, readOnly bool
	version             int // of the server
	pid, reported       uint32
}

// probe checks the server, and the table if it exists. It finds out about a pooler. complete: the tables and the functions
// exist.
func (s *service) probe(ctx context.Context) (complete bool, err error) {
	pooled := !s.opt.listen || s.opt.direct != nil
	s.opt.pooled.Store(true) // until the reply
	all, _, err := query(ctx, s.server, func(r pgx.CollectableRow) (f found, err error) {
		err = r.Scan(&f.table, &f.comment, &f.functions, &f.readOnly, &f.version, &f.pid)
		f.reported = r.(pgx.Rows).Conn().PgConn().PID()
		return f, err
	}, s.sql.probe, s.sql.table, s.sql.rule)
	if err != nil {
		return false, err
	}
	f := all[0]
	// At login a pooler reports a process id of its own, not that of a session.
	s.opt.pooled.Store(pooled || f.reported != f.pid)
	switch {
	case f.version < 140000:
		return false, fmt.Errorf("postgres: server version %d is too old: want 14 or newer", f.version/10000)
	case f.readOnly:
		return false, fmt.Errorf("postgres at %s: %s", s.address(), s.hint(readOnly))
	case f.table != 0 && f.comment != schemaVersion:
		why := fmt.Sprintf("its comment is %.60q, want %q", f.comment, schemaVersion)
		return false, fmt.Errorf("%w table: %s", backend.ErrInvalid, s.otherTable(why))
	}
	return f.table != 0 && f.functions, nil
}

const schemaLock = "SELECT pg_advisory_xact_lock(7310589104321);\n"

// create executes statements that create what is missing, or drop what is not used. An advisory lock makes processes
// that start together do so one after the other.
func (s *server) create(ctx context.Context, text string) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.describe(err)
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, schemaLock+text, pgx.QueryExecModeSimpleProtocol)
	switch sqlState(err) {
	case "42P07", "23505":
		return nil // created in another way meanwhile; the next probe checks it
	}
	if err != nil {
		return s.describe(err)
	}
	return nil
}
