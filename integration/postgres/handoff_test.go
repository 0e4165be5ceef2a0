package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/pglock"
)

// oneWay is the delay injected in each direction. It dominates the delays of a busy
// machine, so that durations count round trips.
const (
	oneWay = 20 * time.Millisecond
	rtt    = 2 * oneWay
)

// contender takes the lock and returns the function that releases it.
type contender func(ctx context.Context) (func(context.Context) error, error)

// benchPool returns a pool whose connections are all open, so that none is opened while
// the link is slow.
func benchPool(t testing.TB, url string, size int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	must(t, err)
	cfg.MaxConns, cfg.MinConns = size, size
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // would be one more round trip
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	must(t, eventually(func() error {
		if n := pool.Stat().IdleConns(); n < size {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	}))
	return pool
}

// designs are kinds of locks in PostgreSQL. Each returns a contender of a client, and a
// function that ends the client.
var designs = map[string]func(t testing.TB, url string, waiters int32) (contender, func()){
	"pglock": func(t testing.TB, url string, _ int32) (contender, func()) {
		pool := benchPool(t, url, 4)
		b, err := pglock.New(pool)
		must(t, err)
		c, err := lock.New(b)
		must(t, err)
		return func(ctx context.Context) (func(context.Context) error, error) {
			l, err := c.Mutex("k").Lock(ctx)
			if err != nil {
				return nil, err
			}
			return l.Unlock, nil
		}, func() { _ = c.Close(context.Background()); pool.Close() }
	},
	// a common lock table: take the lock if it is free or expired, else poll
	"upsert, polled every 10 ms": func(t testing.TB, url string, waiters int32) (contender, func()) {
		pool := benchPool(t, url, waiters)
		return func(ctx context.Context) (func(context.Context) error, error) {
			id := request("", 0).Owner
			for {
				tag, err := pool.Exec(ctx, `INSERT INTO polled AS p VALUES ('k', $1, now() + interval '30 s') ON CONFLICT (name)
					DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE p.owner IS NULL OR p.expires < now()`, id)
				if err != nil {
					return nil, err
				}
				if tag.RowsAffected() == 1 {
					return func(ctx context.Context) error {
						_, err := pool.Exec(ctx, "UPDATE polled SET owner = NULL WHERE name = 'k' AND owner = $1", id)
						return err
					}, nil
				}
				time.Sleep(10 * time.Millisecond)
			}
		}, pool.Close
	},
	"session lock": func(t testing.TB, url string, waiters int32) (contender, func()) {
		pool := benchPool(t, url, waiters)
		return func(ctx context.Context) (func(context.Context) error, error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			if _, err = conn.Exec(ctx, "SELECT pg_advisory_lock(1)"); err != nil {
				conn.Release()
				return nil, err
			}
			return func(ctx context.Context) error {
				defer conn.Release()
				_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(1)")
				return err
			}, nil
		}, pool.Close
	},
	"SELECT FOR UPDATE": func(t testing.TB, url string, waiters int32) (contender, func()) {
		pool := benchPool(t, url, waiters)
		return func(ctx context.Context) (func(context.Context) error, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return nil, err
			}
			if _, err = tx.Exec(ctx, "SELECT FROM polled WHERE name = 'row' FOR UPDATE"); err != nil {
				_ = tx.Rollback(context.Background())
				return nil, err
			}
			return tx.Commit, nil
		}, pool.Close
	},
}

// handOffs measures n hand-offs, from the call of an unlock to the return of the next
// holder's lock. Each waiter locks again and again. taken counts all locks.
func handOffs(t testing.TB, waiters []contender, n int) (gaps []time.Duration, taken int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	last, by := time.Time{}, -1
	full := make(chan struct{})
	var wg sync.WaitGroup
	for i, take := range waiters {
		wg.Go(func() {
			for ctx.Err() == nil {
				unlock, err := take(ctx)
				now := time.Now()
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				taken++
				if by >= 0 && by != i && len(gaps) < n+len(waiters) {
					if gaps = append(gaps, now.Sub(last)); len(gaps) == n+len(waiters) {
						close(full)
					}
				}
				mu.Unlock()
				time.Sleep(time.Millisecond) // the work
				mu.Lock()
				last, by = time.Now(), i
				mu.Unlock()
				if err := unlock(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(5 * time.Millisecond) // other work
			}
		})
	}
	select {
	case <-full:
	case <-time.After(3 * time.Minute):
		t.Error("too slow")
	}
	cancel()
	wg.Wait()
	gaps = gaps[min(len(gaps), len(waiters)):] // from when all wait
	slices.Sort(gaps)
	return gaps, taken
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// distant starts a server behind a link whose delay can be set, and returns the URL of
// the link.
func distant(t testing.TB, settings ...string) (*provision.Proxy, *pgxpool.Pool, string) {
	s := provision.NewPostgres(t, provision.AnyPostgres, settings...)
	admin := pgtest.Admin(t, s)
	for _, q := range []string{
		"CREATE TABLE polled (name text PRIMARY KEY, owner text, expires timestamptz) WITH (fillfactor = 50)",
		"INSERT INTO polled VALUES ('row')",
	} {
		_, err := admin.Exec(t.Context(), q)
		must(t, err)
	}
	p := provision.NewProxy(t, s.Addr())
	return p, admin, strings.Replace(s.PostgresURL(), s.Addr(), p.Addr(), 1)
}

// made returns contenders for the waiters, in four clients.
func made(t testing.TB, design, url string, waiters int) (each []contender, end func()) {
	var ends []func()
	for range 4 {
		c, end := designs[design](t, url, int32(waiters/4))
		ends = append(ends, end)
		for range waiters / 4 {
			each = append(each, c)
		}
	}
	return each, func() {
		for _, f := range ends {
			f()
		}
	}
}

// work returns how many statements the server has executed for clients and how often it
// has waited for the disk. A session reports the latter for certain only when it ends.
func work(t testing.TB, admin *pgxpool.Pool) (statements, syncs int64) {
	counted := "SELECT wal_sync FROM pg_stat_wal"
	var version int
	must(t, admin.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	if version >= 180000 {
		counted = "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'"
	}
	must(t, admin.QueryRow(t.Context(), `SELECT (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query ~ '"interlock|polled|pg_advisory' AND query !~ 'pg_stat')::bigint,
		(`+counted+`)`).Scan(&statements, &syncs)) // a statement that waits is not counted yet
	return statements, syncs
}

// BenchmarkHandOff: -benchtime=300x. The runs with a delay count round trips, the others
// statements and fsyncs.
func BenchmarkHandOff(b *testing.B) {
	p, admin, url := distant(b)
	waiting, delays := []int{16, 64}, []time.Duration{oneWay, 0}
	if testing.Short() { // only checks that it works
		waiting, delays = []int{4}, delays[1:]
	}
	for _, design := range []string{"pglock", "upsert, polled every 10 ms", "session lock", "SELECT FOR UPDATE"} {
		for _, waiters := range waiting {
			for _, delay := range delays {
				b.Run(fmt.Sprintf("%s/%d waiters/RTT %v", design, waiters, 2*delay), func(b *testing.B) {
					raw := rawRoundTrip(b, admin)
					each, end := made(b, design, url, waiters)
					handOffs(b, each, 4*waiters) // statements are prepared, the listener listens
					statements, syncs := work(b, admin)
					p.Delay(delay)
					gaps, taken := handOffs(b, each, b.N)
					p.Delay(0)
					end()
					must(b, eventually(func() error {
						var n int
						err := admin.QueryRow(b.Context(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&n)
						if err == nil && n > 4 {
							err = fmt.Errorf("%d sessions", n)
						}
						return err
					}))
					statementsNow, syncsNow := work(b, admin)
					unit, name := raw, "raw"
					if delay > 0 {
						unit, name = 2*delay, "RTT"
					}
					b.ReportMetric(quantile(gaps, .5).Seconds()/unit.Seconds(), "p50-"+name)
					b.ReportMetric(quantile(gaps, .99).Seconds()/unit.Seconds(), "p99-"+name)
					b.ReportMetric(float64(statementsNow-statements)/float64(taken), "statements/op")
					b.ReportMetric(float64(syncsNow-syncs)/float64(taken), "fsyncs/op")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// rawRoundTrip returns the median of 200 SELECT 1.
func rawRoundTrip(t testing.TB, pool *pgxpool.Pool) time.Duration {
	return roundTrips(t, pool, func(done int) bool { return done < 200 })
}

// roundTrips repeats SELECT 1 while more returns true, and returns the median.
func roundTrips(t testing.TB, pool *pgxpool.Pool, more func(done int) bool) time.Duration {
	var all []time.Duration
	for more(len(all)) {
		begun := time.Now()
		if _, err := pool.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Error(err)
			break
		}
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return quantile(all, .5)
}

// TestRoundTrips is BenchmarkHandOff with a bound that allows for a busy machine but not
// for another round trip: it is relative to the round trips of the same time.
func TestRoundTrips(t *testing.T) {
	p, _, url := distant(t, provision.PostgresUnsynced)
	each, end := made(t, "pglock", url, 16)
	defer end()
	pool := benchPool(t, url, 1)
	defer pool.Close()
	rawRoundTrip(t, pool) // it is prepared
	p.Delay(oneWay)
	defer p.Delay(0)
	over, raw := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		raw <- roundTrips(t, pool, func(int) bool {
			select {
			case <-over:
				return false
			default:
				return true
			}
		})
	}()
	gaps, _ := handOffs(t, each, 50)
	close(over)
	one := max(rtt, <-raw)
	if p50 := quantile(gaps, .5); p50 > one*7/4 {
		t.Errorf("half of the hand-offs took %v or more, with %v to and from the server", p50, one)
	} else {
		t.Logf("hand-off: %.2f round trips of %v, p90 %.2f", p50.Seconds()/one.Seconds(), one, quantile(gaps, .9).Seconds()/one.Seconds())
	}
}
