package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// BenchmarkWaiters measures contended cycles with ever more waiters in four clients:
// -benchtime=2000x. The cost of a cycle must not depend on their number.
func BenchmarkWaiters(b *testing.B) {
	s := provision.NewPostgres(b, provision.AnyPostgres, provision.PostgresUnsynced)
	admin := pgtest.Admin(b, s)
	for _, waiters := range []int{16, 500, 2000, 10000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			var cycles, failed atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				c, err := lock.New(open(b, pgtest.With(s, nil)))
				must(b, err)
				for range waiters / 4 {
					wg.Go(func() {
						for ctx.Err() == nil {
							l, err := c.Mutex("k").Lock(ctx)
							if err != nil {
								if ctx.Err() == nil {
									failed.Add(1)
									b.Log(err)
								}
								continue
							}
							cycles.Add(1)
							_ = l.Unlock(context.WithoutCancel(ctx))
						}
					})
				}
			}
			deadline := time.Now().Add(3 * time.Minute)
			for n := 0; n < waiters*9/10; time.Sleep(100 * time.Millisecond) {
				if err := admin.QueryRow(ctx, "SELECT count(*) FROM interlock_places WHERE kind = 'w'").Scan(&n); err != nil || time.Now().After(deadline) {
					b.Errorf("%d wait: %v", n, err)
					break
				}
			}
			wal := func() (bytes int64) {
				must(b, admin.QueryRow(b.Context(), "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&bytes))
				return bytes
			}
			first, bytes, begun := cycles.Load(), wal(), time.Now()
			for cycles.Load()-first < int64(b.N) && time.Since(begun) < time.Minute {
				time.Sleep(10 * time.Millisecond)
			}
			n, took := float64(cycles.Load()-first), time.Since(begun)
			b.ReportMetric(n/took.Seconds(), "cycles/s")
			b.ReportMetric(float64(wal()-bytes)/n, "WAL-B/cycle")
			b.ReportMetric(float64(failed.Load()), "failed")
			b.ReportMetric(0, "ns/op")
			cancel()
			wg.Wait()
		})
	}
}
