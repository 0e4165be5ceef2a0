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
	schemaVersion = 2
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
	// The primary key is the only index, so a statement but that of Sweep locks one row, or
	// waits for none. This rules out deadlocks among them.
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
  name       VARBINARY(%d) NOT NULL PRIMARY KEY,
  token      BIGINT UNSIGNED NOT NULL,
  owner      VARBINARY(32) NOT NULL,
  metadata   VARBINARY(768) NOT NULL,
  expires    BIGINT NOT NULL COMMENT 'microseconds since 1970, UTC',
  granted    BIGINT NOT NULL COMMENT 'likewise',
  queue      MEDIUMBLOB NOT NULL COMMENT 'waiters: ;owner,ttl in ms,joined in us,metadata',
  gone       VARBINARY(8448) NOT NULL COMMENT 'attempts whose late requests are refused',
  gone_until BIGINT NOT NULL,
  step       TINYINT UNSIGNED NOT NULL COMMENT 'what the last change decided'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='%s%d'`, t.quoted(), maxKey, comment, schemaVersion)
}

var errNoTable = errors.New("the lock table does not exist")

// prepare checks the version of the table. If the table is missing, prepare creates it.
func (b *Backend) prepare(ctx context.Context, conn *sql.Conn) error {
	err := b.checkSchema(ctx, conn)
	if !errors.Is(err, errNoTable) {
		return err
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
	return nil
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
