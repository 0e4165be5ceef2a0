package pglock

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/interlock-go/lock/backend"
)

// prepare finds the table, or makes it, and checks that it can be used.
func (b *Backend) prepare(ctx context.Context) error {
	found, err := b.probe(ctx)
	if err == nil && !found {
		if !b.opt.create {
			return fmt.Errorf("postgres: the table %s is missing: let it be made with create=true, or apply pglock.Schema", b.sql.table)
		}
		if err = b.create(ctx); err == nil {
			_, err = b.probe(ctx)
		}
	}
	if err != nil {
		return err
	}
	// no rows, but all columns and the privilege to read
	if _, err = b.exec(ctx, "SELECT name, token, owner, process, metadata, granted, expires, queue, gone FROM "+b.sql.table+" LIMIT 0"); err != nil {
		return err
	}
	return b.tryListening()
}

func (b *Backend) probe(ctx context.Context) (found bool, err error) {
	var oid int64
	var pid uint32
	var comment, database, user string
	var readOnly bool
	var number int
	b.setPooled(true) // until it is known not to be
	_, err = b.query(ctx, nil, func(r pgx.Rows) error {
		err := r.Scan(&oid, &comment, &readOnly, &number, &database, &user, &pid)
		// a pooler does not know which session a client will get when it logs in
		b.setPooled(r.Conn().PgConn().PID() != pid || !b.opt.listen || b.opt.direct != nil)
		return err
	}, sqlProbe, b.sql.table)
	switch {
	case err != nil:
		return false, err
	case number < 140000:
		return false, fmt.Errorf("postgres: server version %d is too old: want 14 or newer", number/10000)
	case readOnly:
		return false, fmt.Errorf("postgres at %s: the server is a standby or read-only: connect to the primary, with several hosts in the URL if it may move", b.address())
	case oid != 0 && comment != version:
		return false, fmt.Errorf("%w table %s: its comment is %.60q, want %q: it is not of this driver, or of another version; name another table, or apply pglock.Schema where there is none",
			backend.ErrInvalid, b.sql.table, comment, version)
	}
	return oid != 0, nil
}

func (b *Backend) setPooled(yes bool) {
	b.pooled = yes
	if b.opt.noCancel != nil {
		b.opt.noCancel.Store(yes)
	}
}

// create is safe beside others who do the same: one transaction, one at a time.
func (b *Backend) create(ctx context.Context) error {
	schema := statement(sqlSchema, b.sql.table)
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return b.failure(err)
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, "SELECT pg_advisory_xact_lock(7310589104321);\n"+schema, pgx.QueryExecModeSimpleProtocol)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42P07" || pg.Code == "23505") {
		return nil // another did it in another way; the probe says what it is
	}
	if err != nil {
		return b.failure(err)
	}
	return nil
}
