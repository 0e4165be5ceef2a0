package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

const (
	schemaVersion = 4
	comment       = "interlock lock table, schema "
	maxPrefix     = 200
	maxKey        = maxPrefix + 1 + backend.MaxName
)

// Schema returns the statement that creates the table, for a migration. The comment of the
// table has the version of the schema.
func Schema(name string) (string, error) {
	t, err := parseTable(name)
	if err != nil {
		return "", err
	}
	return t.schema(), nil
}

func (t table) schema() string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
  name       VARBINARY(%d) NOT NULL COMMENT 'prefix:name; empty: its token is greater than those of all deleted rows',
  place      BIGINT NOT NULL COMMENT '0: the lock; above: its waiters, in order; above 2^62: shared holders, by token; below: tombstones',
  owner      VARBINARY(32) NOT NULL DEFAULT '' COMMENT 'the attempt that holds, waits or is refused',
  process    VARBINARY(16) NOT NULL DEFAULT '' COMMENT 'of the holder or waiter',
  metadata   VARBINARY(768) NOT NULL DEFAULT '' COMMENT 'likewise',
  ttl        BIGINT NOT NULL DEFAULT 0 COMMENT 'of a waiter, in microseconds',
  granted    BIGINT NOT NULL DEFAULT 0 COMMENT 'when the holder or waiter came, in microseconds since 1970, UTC',
  expires    BIGINT NOT NULL DEFAULT 0 COMMENT 'end of the lease or of the tombstone, or of the deadline of a waiter, likewise',
  token      BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of the last grant',
  served     BIGINT NOT NULL DEFAULT 0 COMMENT 'place of the last waiter that was served; no waiter has one below',
  last       BIGINT NOT NULL DEFAULT 0 COMMENT 'place of the last waiter that came',
  unclaimed  INT NOT NULL DEFAULT 0 COMMENT 'grants in a row that were handed over and not renewed',
  tombstones BIGINT NOT NULL DEFAULT 0 COMMENT 'end of the last tombstone',
  shares     TINYINT NOT NULL DEFAULT 0 COMMENT 'of the lock: 1 if readers or permits may hold it or wait for it',
  weight     INT NOT NULL DEFAULT 0 COMMENT 'permits of a holder or waiter, 1 of a reader, 0: the whole lock',
  capacity   INT NOT NULL DEFAULT 0 COMMENT 'of the semaphore, 0 of readers; of the lock: that of the last one who came',
  slots      VARBINARY(1024) NOT NULL DEFAULT '' COMMENT 'permits of a holder, or of all if the lock is shared: a character 0 or 1 for each',
  PRIMARY KEY (name, place)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='%s%d'`, t.quoted(), maxKey, comment, schemaVersion)
}

var errNoTable = errors.New("the lock table does not exist")

// prepare checks the version of the table. If the table is missing, prepare creates it.
func (b *Backend) prepare(ctx context.Context, conn *sql.Conn) error {
	err := b.checkSchema(ctx, conn)
	if !errors.Is(err, errNoTable) {
		return b.prepareRows(ctx, conn, err)
	}
	if !b.opt.create {
		return fmt.Errorf("%w: table %s: %w; run the statement that mysqllock.Schema returns, or allow create=true", backend.ErrInvalid, b.table, err)
	}
	if _, err := conn.ExecContext(ctx, b.table.schema()); err != nil {
		return fmt.Errorf("creating table %s (or run the statement that mysqllock.Schema returns): %w", b.table, failure(err))
	}
	if err := b.checkSchema(ctx, conn); err != nil {
		return fmt.Errorf("table %s: %w", b.table, err)
	}
	return b.prepareRows(ctx, conn, nil)
}

// prepareRows inserts the row with the floor of the tokens, unless err is not nil. Without that row
// a statement that reads it would lock the gap in which others insert. prepareRows also finds out
// whether the user may delete rows: without that privilege a lock could be acquired and not
// released. A user who may read only, and a read-only server, are good enough to inspect.
func (b *Backend) prepareRows(ctx context.Context, conn *sql.Conn, err error) error {
	for _, q := range []string{"INSERT IGNORE INTO {table} (name,place) VALUES ('',0)", "DELETE FROM {table} WHERE name='' AND place=-1"} {
		if err == nil {
			_, err = conn.ExecContext(ctx, b.sql(q, values{}))
		}
		switch number(err) {
		case errTableDenied, errColumnDenied, errAccessDenied:
			b.denied, err = failure(err), nil
		case errReadOnly, errReadOnlyTx, errReadOnlyEngine:
			err = nil
		}
	}
	return failure(err)
}

func (b *Backend) checkSchema(ctx context.Context, conn *sql.Conn) error {
	database := "DATABASE()"
	if b.table.database != "" {
		database = lit(b.table.database)
	}
	var engine, tableComment string
	q := fmt.Sprintf("SELECT COALESCE(engine,''), COALESCE(table_comment,'') FROM information_schema.tables WHERE table_schema = CONVERT(%s USING utf8) AND table_name = CONVERT(%s USING utf8)", database, lit(b.table.name)) //nolint:gosec // hex literals
	err := conn.QueryRowContext(ctx, q).Scan(&engine, &tableComment)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errNoTable
	case err != nil:
		return failure(err)
	}
	version, ours := strings.CutPrefix(tableComment, comment)
	switch {
	case !ours:
		return fmt.Errorf("%w: table %s is not a lock table (its comment is %.60q); choose another with ?table=", backend.ErrInvalid, b.table, tableComment)
	case version != fmt.Sprint(schemaVersion):
		return fmt.Errorf("%w: table %s has schema %.20q, this version of the driver wants %d", backend.ErrInvalid, b.table, version, schemaVersion)
	case !strings.EqualFold(engine, "InnoDB"):
		return fmt.Errorf("%w: table %s has engine %s, want InnoDB", backend.ErrInvalid, b.table, engine)
	}
	return nil
}
