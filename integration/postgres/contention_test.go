package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/pglock"
)

// poolOf returns a pool as an application has one.
func poolOf(t testing.TB, url string, size int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	must(t, err)
	cfg.MaxConns = size
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// over returns a client of a pool.
func over(t *testing.T, pool *pgxpool.Pool) *lock.Client {
	t.Helper()
	b, err := pglock.New(pool)
	must(t, err)
	c, err := lock.New(b)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// contend makes workers lock and unlock a few keys. It fails if two hold one at once, or
// if tokens do not rise.
func contend(t *testing.T, clients []*lock.Client, keys, workers, cycles int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	inside := make([]atomic.Int64, keys)
	last := make([]uint64, keys)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range cycles {
				k := (w + i) % keys
				l, err := clients[w%len(clients)].Mutex(fmt.Sprint("contended-", k)).Lock(ctx)
				if err != nil {
					t.Errorf("worker %d: %v", w, err)
					return
				}
				token, _ := l.Token()
				if inside[k].Add(1) != 1 || token <= last[k] {
					t.Errorf("key %d: two holders, or token %d after %d", k, token, last[k])
				}
				last[k] = token
				inside[k].Add(-1)
				if err := l.Unlock(ctx); err != nil {
					t.Errorf("worker %d: unlock: %v", w, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// deadlocks returns how many deadlocks the server has resolved.
func deadlocks(t *testing.T, admin *pgxpool.Pool) (n int) {
	t.Helper()
	must(t, admin.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
	return n
}

// TestDeadlocks does 1,920 contended operations at each level, and as many of a common
// naive design: each lock inserts a row and each unlock deletes it, with a unique index
// besides the primary key.
func TestDeadlocks(t *testing.T) {
	s, admin := server(t)
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		setLevel(t.Context(), t, admin, level)
		clients := []*lock.Client{over(t, poolOf(t, s.PostgresURL(), 8)), over(t, poolOf(t, s.PostgresURL(), 8))}
		before, err := pgtest.Commands(t.Context(), admin)
		must(t, err)
		begun := time.Now()
		contend(t, clients, 3, 16, 60) // 960 locks and 960 unlocks
		took := time.Since(begun)
		after, err := pgtest.Commands(t.Context(), admin)
		must(t, err)
		n := deadlocks(t, admin)
		t.Logf("%s: 1,920 operations in %v, %.2f statements for each lock and unlock, %d deadlocks", level, took.Round(time.Millisecond), float64(after-before)/960, n)
		if n > 0 {
			t.Errorf("%s: %d deadlocks", level, n)
		}
		naive(t, s.PostgresURL(), admin, level)
		if more := deadlocks(t, admin); more > n {
			return // of the naive design; the next ones could not be attributed
		}
	}
}

func naive(t *testing.T, url string, admin *pgxpool.Pool, level string) {
	t.Helper()
	sql(t, admin, "DROP TABLE IF EXISTS naive; CREATE TABLE naive (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE, owner int NOT NULL)")
	pool := poolOf(t, url, 16)
	var refused, dead, conflicts atomic.Int64
	count := func(err error) bool {
		var pg *pgconn.PgError
		switch {
		case err == nil:
			return true
		case errors.As(err, &pg) && pg.Code == "23505":
			refused.Add(1)
		case errors.As(err, &pg) && pg.Code == "40P01":
			dead.Add(1)
		case errors.As(err, &pg) && pg.Code == "40001":
			conflicts.Add(1)
		default:
			t.Errorf("naive: %v", err)
		}
		return false
	}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 60 {
				name := fmt.Sprint("k", (w+i)%3)
				_, err := pool.Exec(t.Context(), "INSERT INTO naive (name, owner) VALUES ($1, $2)", name, w)
				count(err)
				_, err = pool.Exec(t.Context(), "DELETE FROM naive WHERE name = $1 AND owner = $2", name, w)
				count(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%s: the naive design: of 960 locks and 960 unlocks %d refused, %d deadlocks, %d serialization failures", level, refused.Load(), dead.Load(), conflicts.Load())
}

// TestSmallPools holds 200 locks at once through a pool of ten connections, with a
// waiter for each, and contends through a pool of one.
func TestSmallPools(t *testing.T) {
	s, admin := server(t)
	contend(t, []*lock.Client{over(t, poolOf(t, s.PostgresURL(), 1))}, 2, 6, 10)

	const keys = 200
	pool := poolOf(t, s.PostgresURL(), 10)
	c := over(t, pool)
	before, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	begun := time.Now()
	var all, waiting, wg sync.WaitGroup
	all.Add(keys)
	waiting.Add(keys)
	held := make([]*lock.Lease, keys)
	for k := range keys {
		wg.Go(func() {
			l, err := c.Mutex(fmt.Sprint("key", k)).Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			held[k] = l
			all.Done()
		})
	}
	all.Wait()
	taken := time.Since(begun)
	if t.Failed() {
		return
	}
	waiter := over(t, poolOf(t, s.PostgresURL(), 10))
	for k := range keys {
		wg.Go(func() {
			l, err := waiter.Mutex(fmt.Sprint("key", k)).Lock(t.Context())
			if err == nil {
				err = l.Unlock(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	must(t, eventually(func() error {
		var n int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM interlock_places WHERE kind = 'w'").Scan(&n)
		if err == nil && n < keys {
			err = fmt.Errorf("%d wait", n)
		}
		return err
	}))
	queued := time.Since(begun)
	for _, l := range held {
		if err := l.Err(); err != nil {
			t.Errorf("%s: %v", l.Name(), err)
		}
		wg.Go(func() {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	after, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	t.Logf("200 keys held at once through 10 connections: all taken after %v, a waiter for each after %v, all handed over and released after %v; %.2f statements for each of 400 cycles",
		taken, queued, time.Since(begun), float64(after-before)/400)
	if n := deadlocks(t, admin); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
	if n := pool.Stat().TotalConns(); n > 10 {
		t.Errorf("%d connections", n)
	}
	must(t, pool.Ping(t.Context()))
}

// TestConnectionLimit: the connections of the driver reach the limit of their role, which
// allows one connection of the pool and the listening connection or not. All operations
// succeed, also renewals, and waiters are notified again when the limit is raised.
func TestConnectionLimit(t *testing.T) {
	s, admin := server(t)
	open(t, pgtest.With(s, nil)) // makes the table
	sql(t, admin, "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON interlock, interlock_places TO app")
	sessions := func(t *testing.T, listening bool) (n int) {
		t.Helper()
		must(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND (query LIKE 'LISTEN%') = $1", listening).Scan(&n))
		return n
	}
	want := func(t *testing.T, listening, others int) {
		t.Helper()
		must(t, eventually(func() error {
			if l, o := sessions(t, true), sessions(t, false); l != listening || o != others {
				return fmt.Errorf("want %d listening and %d others, got %d and %d", listening, others, l, o)
			}
			return nil
		}))
	}
	for _, limit := range []int{1, 2} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			sql(t, admin, fmt.Sprintf("ALTER ROLE app CONNECTION LIMIT %d", limit))
			b := open(t, as(pgtest.With(s, nil, "pool_size", "4"), "app"))
			c, err := lock.New(b)
			must(t, err)
			l, err := c.Mutex("k", lock.WithTTL(5*time.Minute)).Lock(t.Context())
			must(t, err)
			renewed, err := c.Mutex("renewed", lock.WithTTL(5*time.Minute)).Lock(t.Context())
			must(t, err)
			var got []<-chan outcome
			for range 2 {
				got = append(got, waitFor(t, b, request("k", 5*time.Minute)))
			}
			want(t, limit-1, 1)
			did := make(chan error)
			for what, f := range map[string]func() error{
				"Inspect": func() error { _, err := c.Inspect(t.Context(), "k"); return err },
				"Extend":  func() error { return l.Extend(t.Context(), 5*time.Minute) },
				"Ping":    func() error { return c.Ping(t.Context()) },
				"Renew":   func() error { return renewed.Check(t.Context()) },
				"Lock and Unlock": func() error {
					other, err := c.Mutex("other").Lock(t.Context())
					if err != nil {
						return err
					}
					return other.Unlock(t.Context())
				},
			} {
				go func() {
					err := f()
					if err != nil {
						err = fmt.Errorf("%s: %w", what, err)
					}
					did <- err
				}()
			}
			for range 5 {
				if err := <-did; err != nil {
					t.Error(err)
				}
			}
			if limit == 2 { // the listening connection has the last slot
				sql(t, admin, "ALTER ROLE app CONNECTION LIMIT 1")
				sql(t, admin, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'app' AND query NOT LIKE 'LISTEN%'")
				if _, err := c.Inspect(t.Context(), "k"); err != nil {
					t.Errorf("Inspect with a pool that has no connection: %v", err)
				}
				if err := renewed.Check(t.Context()); err != nil {
					t.Errorf("a renewal without a listening connection: %v", err)
				}
				want(t, 0, 1)
			}
			must(t, l.Unlock(t.Context()))
			first := <-got[0]
			must(t, first.err)
			must(t, first.g.Renew(t.Context(), 5*time.Minute)) // it is provisional
			sql(t, admin, "ALTER ROLE app CONNECTION LIMIT 4")
			must(t, eventually(func() error {
				if sessions(t, true) != 1 {
					return errors.New("no listening connection, although the limit allows it")
				}
				return nil
			}))
			must(t, first.g.Release(t.Context()))
			second := <-got[1]
			must(t, second.err)
			must(t, second.g.Release(t.Context()))
			if err := renewed.Unlock(t.Context()); err != nil {
				t.Errorf("the lock that was renewed: %v", err)
			}
		})
	}
}
