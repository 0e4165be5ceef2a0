package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// BenchmarkRenewals renews 1,000 grants one by one, by eight connections, and in four
// batches, one after the other. It reports the work of the server and the ratio of the
// times.
func BenchmarkRenewals(b *testing.B) {
	s := provision.NewPostgres(b, provision.Postgres15)
	admin := pgtest.Admin(b, s)
	l := open(b, pgtest.With(s, nil, "pool_size", "8", "application_name", "bench"))
	all := batchOf(b, l, "r", 1000, time.Hour)
	single := func() {
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := w; i < len(all); i += 8 {
					if err := all[i].Grant.Renew(b.Context(), time.Hour); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	batches := func() {
		for i := 0; i < len(all); i += 250 {
			for _, err := range l.RenewBatch(b.Context(), all[i:i+250]) {
				if err != nil {
					b.Error(err)
				}
			}
		}
	}
	// a session reports its work for certain only when it has ended
	count := func() (statements, syncs int64) {
		must(b, eventually(func() error {
			var n int
			err := admin.QueryRow(b.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'bench'").Scan(&n)
			if err == nil && n > 0 {
				err = fmt.Errorf("%d sessions", n)
			}
			return err
		}))
		for range 16 {
			_ = l.Ping(b.Context()) // replaces the connections that were ended
		}
		return work(b, admin)
	}
	var took [2]time.Duration
	var statements, syncs [2]int64
	for b.Loop() {
		for i, renew := range []func(){single, batches} {
			st, sy := count()
			renew()
			stNow, syNow := count()
			statements[i], syncs[i] = statements[i]+stNow-st, syncs[i]+syNow-sy
			renew() // connected and prepared
			begun := time.Now()
			renew()
			took[i] += time.Since(begun)
		}
	}
	for i, name := range []string{"-single", "-batch"} {
		b.ReportMetric(float64(statements[i])/float64(b.N), "statements"+name)
		b.ReportMetric(float64(syncs[i])/float64(b.N), "fsyncs"+name)
		b.ReportMetric(float64(took[i].Milliseconds())/float64(b.N), "ms"+name)
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "times-faster")
	b.ReportMetric(0, "ns/op")
}
