// Package databases_test compares ways to protect one row of a database from lost
// updates, on the same server in the same run. docs/choosing.md has the figures.
package databases_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/pglock"
)

func TestMain(m *testing.M) { provision.Main(m) }

// dialect has what differs between the databases.
type dialect struct {
	name                      string
	open                      func(t testing.TB) (db *sql.DB, url string)
	read, write, versioned    string
	sessionLock, sessionLeave string
}

var dialects = []dialect{
	{
		name: "PostgreSQL",
		open: func(t testing.TB) (*sql.DB, string) {
			s := provision.NewPostgres(t, provision.Postgres15)
			db, err := sql.Open("pgx", s.PostgresURL())
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			return db, s.PostgresURL()
		},
		read: "SELECT n, version FROM stock WHERE id = 1", write: "UPDATE stock SET n = $1 WHERE id = 1",
		versioned:   "UPDATE stock SET n = $1, version = version + 1 WHERE id = 1 AND version = $2",
		sessionLock: "SELECT pg_advisory_lock(1)", sessionLeave: "SELECT pg_advisory_unlock(1)",
	},
	{
		name: "MariaDB",
		open: func(t testing.TB) (*sql.DB, string) {
			s := provision.NewMySQL(t, provision.MariaDB10, provision.Options{})
			return provision.MySQLPool(t, s, func(c *mysql.Config) { c.InterpolateParams = true }), s.URL()
		},
		read: "SELECT n, version FROM stock WHERE id = 1", write: "UPDATE stock SET n = ? WHERE id = 1",
		versioned:   "UPDATE stock SET n = ?, version = version + 1 WHERE id = 1 AND version = ?",
		sessionLock: "SELECT GET_LOCK('stock', 60)", sessionLeave: "SELECT RELEASE_LOCK('stock')",
	},
}

// way increments n of the row, with some work between read and write. It returns how
// many tries it took.
type way func(ctx context.Context, work time.Duration) (tries int, err error)

func (d dialect) ways(db *sql.DB, m lock.Mutex) map[string]way {
	add := func(ctx context.Context, on interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}, forUpdate string, work time.Duration,
	) error {
		var n, version int
		if err := on.QueryRowContext(ctx, d.read+forUpdate).Scan(&n, &version); err != nil {
			return err
		}
		pass(work)
		_, err := on.ExecContext(ctx, d.write, n+1)
		return err
	}
	return map[string]way{
		"FOR UPDATE": func(ctx context.Context, work time.Duration) (int, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return 1, err
			}
			defer func() { _ = tx.Rollback() }()
			if err := add(ctx, tx, " FOR UPDATE", work); err != nil {
				return 1, err
			}
			return 1, tx.Commit()
		},
		"version check": func(ctx context.Context, work time.Duration) (int, error) {
			for tries := 1; ; tries++ {
				var n, version int
				if err := db.QueryRowContext(ctx, d.read).Scan(&n, &version); err != nil {
					return tries, err
				}
				pass(work)
				r, err := db.ExecContext(ctx, d.versioned, n+1, version)
				if err != nil {
					return tries, err
				}
				if done, err := r.RowsAffected(); done == 1 || err != nil {
					return tries, err
				}
				pass(rand.N(time.Millisecond * time.Duration(min(tries, 10)))) // so that they do not collide again
			}
		},
		"session lock": func(ctx context.Context, work time.Duration) (int, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return 1, err
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.ExecContext(ctx, d.sessionLock); err != nil {
				return 1, err
			}
			err = add(ctx, conn, "", work)
			_, uerr := conn.ExecContext(ctx, d.sessionLeave)
			return 1, errors.Join(err, uerr)
		},
		"lease": func(ctx context.Context, work time.Duration) (int, error) {
			l, err := m.Lock(ctx)
			if err != nil {
				return 1, err
			}
			return 1, errors.Join(add(ctx, db, "", work), l.Unlock(ctx))
		},
	}
}

func pass(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}

// BenchmarkOneRow: -benchtime=500x. One worker, and sixteen for the same row, with and
// without work between read and write. Times are in units of a SELECT 1 at that time.
func BenchmarkOneRow(b *testing.B) {
	for _, d := range dialects {
		b.Run(d.name, func(b *testing.B) {
			db, url := d.open(b)
			db.SetMaxOpenConns(20)
			db.SetMaxIdleConns(20)
			for _, q := range []string{
				"CREATE TABLE stock (id int PRIMARY KEY, n int NOT NULL, version int NOT NULL)", "INSERT INTO stock VALUES (1, 0, 0)",
			} {
				_, err := db.Exec(q)
				must(b, err)
			}
			c, err := lock.Open(b.Context(), url)
			must(b, err)
			defer func() { _ = c.Close(context.Background()) }()
			for _, workers := range []int{1, 16} {
				for _, work := range []time.Duration{0, 5 * time.Millisecond} {
					for _, name := range []string{"FOR UPDATE", "version check", "session lock", "lease"} {
						b.Run(fmt.Sprintf("%d at once/%v of work/%s", workers, work, name), func(b *testing.B) {
							measure(b, db, workers, work, d.ways(db, c.Mutex("stock"))[name])
						})
					}
				}
			}
		})
	}
}

func measure(b *testing.B, db *sql.DB, workers int, work time.Duration, add way) {
	var before, after int
	must(b, db.QueryRow("SELECT n FROM stock").Scan(&before))
	raw := roundTrip(b, db)
	var left, tries atomic.Int64
	left.Store(int64(b.N))
	var mu sync.Mutex
	var each []time.Duration
	busiest, over := 0, make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				busiest = max(busiest, db.Stats().InUse)
			case <-over:
				tick.Stop()
				return
			}
		}
	})
	var wg sync.WaitGroup
	begun := time.Now()
	for range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				n, err := add(b.Context(), work)
				if err != nil {
					b.Error(err)
					return
				}
				tries.Add(int64(n))
				mu.Lock()
				each = append(each, time.Since(start))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := time.Since(begun)
	close(over)
	sampler.Wait()
	raw = (raw + roundTrip(b, db)) / 2
	must(b, db.QueryRow("SELECT n FROM stock").Scan(&after))
	if after-before != b.N {
		b.Errorf("%d of %d additions were lost", b.N-(after-before), b.N)
	}
	slices.Sort(each)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took)/float64(b.N)/float64(raw), "raw/op")
	b.ReportMetric(float64(each[len(each)/2])/float64(raw), "p50-raw")
	b.ReportMetric(float64(each[len(each)*99/100])/float64(raw), "p99-raw")
	b.ReportMetric(float64(tries.Load())/float64(b.N), "tries/op")
	b.ReportMetric(float64(busiest), "conns")
	b.ReportMetric(float64(raw.Microseconds()), "raw-µs")
}

// roundTrip returns the median of 200 SELECT 1.
func roundTrip(t testing.TB, db *sql.DB) time.Duration {
	var all []time.Duration
	for range 200 {
		begun := time.Now()
		var one int
		must(t, db.QueryRow("SELECT 1").Scan(&one))
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
