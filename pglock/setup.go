package pglock

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// setUp finds or creates the table, checks that it can be read, and finds out whether
// notifications arrive.
func (b *Backend) setUp(ctx context.Context) error {
	found, err := b.probe(ctx)
	if err == nil && !found {
		if !b.opt.create {
			return fmt.Errorf("postgres: %s", b.hint("42P01"))
		}
		if err = b.create(ctx); err == nil {
			_, err = b.probe(ctx)
		}
	}
	if err == nil {
		_, _, err = b.exec(ctx, do(b.sql.columns)) // reads no row; needs all columns and SELECT
	}
	if err != nil {
		return err
	}
	if b.opt.always {
		return b.startListening(ctx)
	}
	return b.tryListening()
}

// probe checks the server, and the table if it exists. It finds out about a pooler.
func (b *Backend) probe(ctx context.Context) (found bool, err error) {
	var oid int64
	var pid uint32
	var comment string
	var readOnly, fixPlans bool
	var serverVersion int
	b.fixPlans = false       // a probe is one statement
	b.opt.pooled.Store(true) // until the reply
	_, _, err = query(ctx, b, 0, func(r pgx.CollectableRow) (none struct{}, err error) {
		err = r.Scan(&oid, &comment, &readOnly, &serverVersion, &pid, &fixPlans)
		// At login a pooler reports a process id of its own, not that of a session.
		b.opt.pooled.Store(r.(pgx.Rows).Conn().PgConn().PID() != pid || !b.opt.listen || b.opt.direct != nil)
		return none, err
	}, do(b.sql.probe, b.sql.table))
	switch {
	case err != nil:
		return false, err
	case serverVersion < 140000:
		return false, fmt.Errorf("postgres: server version %d is too old: want 14 or newer", serverVersion/10000)
	case readOnly:
		return false, fmt.Errorf("postgres at %s: %s", b.address(), b.hint("25006"))
	case oid != 0 && comment != schemaVersion:
		return false, fmt.Errorf("%w table %s: its comment is %.60q, want %q: it was not created by this driver, or by another version; set another table, or apply pglock.Schema to create one",
			backend.ErrInvalid, b.sql.table, comment, schemaVersion)
	}
	b.fixPlans = fixPlans
	return oid != 0, nil
}

// create creates the table. An advisory lock makes processes that start together
// create it one after the other.
func (b *Backend) create(ctx context.Context) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return b.describe(err)
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, "SELECT pg_advisory_xact_lock(7310589104321);\n"+b.sql.schema, pgx.QueryExecModeSimpleProtocol)
	switch sqlState(err) {
	case "42P07", "23505":
		return nil // created in another way meanwhile; the next probe checks it
	}
	if err != nil {
		return b.describe(err)
	}
	return nil
}
