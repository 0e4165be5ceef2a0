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

	"github.com/interlock-go/lock/cmd/lockctl/measure"
)

// postgresPeers has the session's advisory lock: no TTL, no token, a connection for
// each holder and each waiter.
func postgresPeers(url string) []measure.Target {
	return []measure.Target{target("pg_advisory_lock", func(ctx context.Context) (*peer, error) {
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		cfg.MaxConns = 64
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return &peer{
			ping: func(ctx context.Context) error {
				_, err := pool.Exec(ctx, "SELECT 1")
				return err
			},
			close: func() error { pool.Close(); return nil },
			lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
				c, err := pool.Acquire(ctx)
				if err != nil {
					return nil, err
				}
				h := fnv.New64a()
				_, _ = h.Write([]byte(name)) // never fails
				key := int64(h.Sum64())
				if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
					c.Release()
					return nil, err
				}
				return func(ctx context.Context) error {
					defer c.Release()
					_, err := c.Exec(ctx, "SELECT pg_advisory_unlock($1)", key)
					return err
				}, nil
			},
		}, nil
	})}
}

// mysqlPeers has the session's named lock, with the same limits.
func mysqlPeers(rawURL string) []measure.Target {
	return []measure.Target{target("GET_LOCK", func(context.Context) (*peer, error) {
		u, err := url.Parse(rawURL)
		if err != nil {
			return nil, err
		}
		cfg := mysql.NewConfig()
		cfg.Net, cfg.Addr, cfg.DBName, cfg.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
		cfg.Passwd, _ = u.User.Password()
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(64)
		db.SetMaxIdleConns(64)
		return &peer{
			ping: func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, "SELECT 1")
				return err
			},
			close: db.Close,
			lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
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
			},
		}, nil
	})}
}
