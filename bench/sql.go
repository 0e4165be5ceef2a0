package bench

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

const floorTable = "CREATE TABLE IF NOT EXISTS floor (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)"

// updates returns the writes of a database: each updates the row of a name by its key.
func updates(exec func(ctx context.Context, statement string, id int64) error, insert, update string) writes {
	var made once
	write := func(ctx context.Context, name string) error {
		id := number(name)
		if err := made.do(name, func() error { return exec(ctx, insert, id) }); err != nil {
			return err
		}
		return exec(ctx, update, id)
	}
	return writes{write, write}
}

func number(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return int64(h.Sum64())
}

func postgresClient(ctx context.Context, url string) (*pgxpool.Pool, *peer, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = 64
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return pool, &peer{
		ping: func(ctx context.Context) error {
			_, err := pool.Exec(ctx, "SELECT 1")
			return err
		},
		close: func() error { pool.Close(); return nil },
	}, nil
}

// postgresPeers returns the advisory lock of a session: it has no TTL and no token, and
// each holder and each waiter needs a connection.
func postgresPeers(url string) []measure.Target {
	return []measure.Target{target("pg_advisory_lock", func(ctx context.Context) (*peer, error) {
		pool, p, err := postgresClient(ctx, url)
		if err != nil {
			return nil, err
		}
		p.lock = func(ctx context.Context, name string) (func(context.Context) error, error) {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			key := number(name)
			if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
				c.Release()
				return nil, err
			}
			return func(ctx context.Context) error {
				defer c.Release()
				_, err := c.Exec(ctx, "SELECT pg_advisory_unlock($1)", key)
				return err
			}, nil
		}
		return p, nil
	}), floor(func(ctx context.Context) (writes, *peer, error) {
		pool, p, err := postgresClient(ctx, url)
		if err != nil {
			return writes{}, nil, err
		}
		if _, err := pool.Exec(ctx, floorTable); err != nil {
			return writes{}, nil, errors.Join(err, p.close())
		}
		return updates(func(ctx context.Context, statement string, id int64) error {
			_, err := pool.Exec(ctx, statement, id)
			return err
		}, "INSERT INTO floor VALUES ($1, 0) ON CONFLICT DO NOTHING", "UPDATE floor SET n = n + 1 WHERE id = $1"), p, nil
	})}
}

func mysqlClient(rawURL string) (*sql.DB, *peer, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, nil, err
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName, cfg.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.InterpolateParams = true // without it each call is prepared first, in one more round trip
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	return db, &peer{
		ping: func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "SELECT 1")
			return err
		},
		close: db.Close,
	}, nil
}

// mysqlPeers returns the named lock of a session, with the same limits.
func mysqlPeers(url string) []measure.Target {
	return []measure.Target{target("GET_LOCK", func(context.Context) (*peer, error) {
		db, p, err := mysqlClient(url)
		if err != nil {
			return nil, err
		}
		p.lock = func(ctx context.Context, name string) (func(context.Context) error, error) {
			c, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			var got sql.NullInt64
			if err := c.QueryRowContext(ctx, "SELECT GET_LOCK(?, 30)", name).Scan(&got); err != nil || got.Int64 != 1 {
				return nil, errors.Join(errors.New("GET_LOCK: not granted"), err, c.Close())
			}
			return func(ctx context.Context) error {
				_, err := c.ExecContext(ctx, "DO RELEASE_LOCK(?)", name)
				return errors.Join(err, c.Close())
			}, nil
		}
		return p, nil
	}), floor(func(ctx context.Context) (writes, *peer, error) {
		db, p, err := mysqlClient(url)
		if err != nil {
			return writes{}, nil, err
		}
		if _, err := db.ExecContext(ctx, floorTable); err != nil {
			return writes{}, nil, errors.Join(err, p.close())
		}
		return updates(func(ctx context.Context, statement string, id int64) error {
			_, err := db.ExecContext(ctx, statement, id)
			return err
		}, "INSERT IGNORE INTO floor VALUES (?, 0)", "UPDATE floor SET n = n + 1 WHERE id = ?"), p, nil
	})}
}
