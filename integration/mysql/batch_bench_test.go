package mysql_test

import (
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// BenchmarkRenewals renews 1,000 grants one by one, over all connections of the pool, and in
// four batches one after the other. It reports what the server does for each way, and how
// much faster the batches are in the same run.
func BenchmarkRenewals(b *testing.B) {
	flavours := provision.MySQLFlavours()
	if testing.Short() { // only checks that it works
		flavours = flavours[:1]
	}
	for _, flavour := range flavours {
		b.Run(flavour, func(b *testing.B) {
			s := provision.NewMySQL(b, flavour, provision.Options{})
			admin := provision.MySQLPool(b, s, nil)
			raw, err := suite.Open(b.Context(), suite.WithParams(s.URL(), map[string]string{"pool_size": "8", "notify": "off"}))
			if err != nil {
				b.Fatal(err)
			}
			defer raw.Close(b.Context())
			l := raw.(*mysqllock.Backend)
			all := batchOf(b, l, "r", 1000)
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
			count := func() (statements, syncs int64) {
				statements, err := mysqltest.Statements(b.Context(), admin)
				if err == nil && flavour == provision.MySQL9 { // the others do not count them
					var name string
					err = admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_fsyncs'").Scan(&name, &syncs)
				}
				if err != nil {
					b.Fatal(err)
				}
				return statements, syncs
			}
			var took [2]time.Duration
			var statements, syncs [2]int64
			for b.Loop() {
				for i, renew := range []func(){single, batches} {
					renew() // opens connections
					st, sy := count()
					begun := time.Now()
					renew()
					took[i] += time.Since(begun)
					stNow, syNow := count()
					statements[i], syncs[i] = statements[i]+stNow-st-1, syncs[i]+syNow-sy
					if flavour == provision.MySQL9 {
						statements[i]-- // the second statement of the count
					}
				}
			}
			for i, name := range []string{"-single", "-batch"} {
				b.ReportMetric(float64(statements[i])/float64(b.N), "statements"+name)
				if flavour == provision.MySQL9 {
					b.ReportMetric(float64(syncs[i])/float64(b.N), "fsyncs"+name)
				}
				b.ReportMetric(float64(took[i].Milliseconds())/float64(b.N), "ms"+name)
			}
			b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "times-faster")
			b.ReportMetric(0, "ns/op")
		})
	}
}
