package redis_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// BenchmarkTenThousandLeases holds 10,000 leases with one client for a TTL, and
// reports what that costs: memory of the process per lease, goroutines, commands
// and connections of the server. Time per operation says nothing here.
func BenchmarkTenThousandLeases(b *testing.B) {
	const leases, ttl = 10_000, 15 * time.Second
	ctx := context.Background()
	s := provision.NewRedis(b, provision.AnyRedis, provision.Options{})
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer admin.Close()
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		var lost sync.Map
		c, err := lock.Open(ctx, s.URL(), lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
			Lost: func(_ context.Context, e lock.Event) { lost.Store(e.Name, e.Err) },
		}))
		if err != nil {
			b.Fatal(err)
		}
		held := make([]*lock.Lease, leases)
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := w; i < leases; i += 16 {
					l, err := c.Mutex(fmt.Sprintf("lease-%d", i)).TryLock(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					held[i] = l
				}
			})
		}
		wg.Wait()
		if b.Failed() {
			return
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/leases, "heap-B/lease")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")

		first, err := commands(ctx, admin)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		<-time.After(2 * ttl) // the length of the measurement
		last, err := commands(ctx, admin)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(last-first)/time.Since(start).Seconds(), "commands/s")
		b.ReportMetric(float64(last-first)/leases/2, "commands/lease/TTL")
		for _, l := range held {
			if err := l.Err(); err != nil {
				b.Fatalf("%s: %v", l.Name(), err)
			}
		}
		lost.Range(func(k, v any) bool { b.Errorf("lost %v: %v", k, v); return true })
		if err := c.Close(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
