package measure

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/interlock-go/lock/backend"
)

// watchMySQL counts statements and bytes of redo, by status variables, and rows.
func watchMySQL(ctx context.Context, t *Target, u *backend.URL) error {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", hostPort(u), strings.TrimPrefix(u.Path, "/")
	c.User, c.Passwd = userOf(u)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&t.Version); err != nil {
		_ = db.Close()
		return err
	}
	if !strings.Contains(t.Version, "MariaDB") {
		t.Version = "MySQL " + t.Version
	}
	status := func(name string) func(context.Context) (int64, error) {
		return func(ctx context.Context) (n int64, err error) {
			err = db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &n)
			return n, err
		}
	}
	t.Operations, t.Written = status("Questions"), status("Innodb_os_log_written")
	t.Stored = func(ctx context.Context) (int64, error) {
		return countRows(ctx, db, "SELECT CONCAT('`', table_name, '`') FROM information_schema.tables WHERE table_schema = DATABASE()")
	}
	t.closes(func() { _ = db.Close() })
	return nil
}

// watchPostgres counts bytes of WAL, rows, and the transactions of the server that write, by their ids. Each statement of the driver that
// changes a row is one. The statistics of the server also count those that only read, but up to ten seconds late.
func watchPostgres(ctx context.Context, t *Target, u *backend.URL) error {
	c, err := pgx.ParseConfig("")
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(hostPort(u))
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	c.Host, c.Port, c.Database, c.TLSConfig, c.Fallbacks = host, uint16(number), strings.TrimPrefix(u.Path, "/"), nil, nil
	c.User, c.Password = userOf(u)
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(1)
	if err := db.QueryRowContext(ctx, "SHOW server_version").Scan(&t.Version); err != nil {
		_ = db.Close()
		return err
	}
	t.Version = "PostgreSQL " + t.Version
	query := func(query string) func(context.Context) (int64, error) {
		return func(ctx context.Context) (n int64, err error) {
			err = db.QueryRowContext(ctx, query).Scan(&n)
			return n, err
		}
	}
	t.Operations = query("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
	t.Written = query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
	t.Stored = func(ctx context.Context) (int64, error) {
		return countRows(ctx, db, "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
	}
	t.closes(func() { _ = db.Close() })
	return nil
}

// countRows returns the number of rows in all tables that a query names.
func countRows(ctx context.Context, db *sql.DB, names string) (n int64, err error) {
	rows, err := db.QueryContext(ctx, names)
	if err != nil {
		return 0, err
	}
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		tables = append(tables, table)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, err
	}
	for _, table := range tables {
		var one int64
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&one); err != nil {
			return 0, err
		}
		n += one
	}
	return n, nil
}
