package redis_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/redistest"
	"github.com/interlock-go/lock/integration/suite"
)

var manyLeases = flag.Int("leases", 10_000, "leases of BenchmarkManyLeases")

// oneByOne hides the BatchRenewer of a backend.
type oneByOne struct{ backend.Backend }

// BenchmarkManyLeases holds many leases with one client for two TTLs, renewed one by
// one and together, and reports the costs: memory of the process per lease,
// goroutines, commands, reads and connections of the server, and the processor's time
// of both. Time per operation has no meaning here.
func BenchmarkManyLeases(b *testing.B) {
	s := provision.NewRedis(b, provision.AnyRedis, provision.Options{})
	for name, wrap := range map[string]func(backend.Backend) backend.Backend{
		"one by one": func(b backend.Backend) backend.Backend { return oneByOne{b} },
		"together":   func(b backend.Backend) backend.Backend { return b },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				manyLeasesOf(b, s, wrap)
			}
		})
	}
}

func manyLeasesOf(b *testing.B, s *provision.Server, wrap func(backend.Backend) backend.Backend) {
	ttl, leases := 15*time.Second, *manyLeases
	if testing.Short() { // does it work?
		ttl, leases = 3*time.Second, 200
	}
	ctx := context.Background()
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer admin.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	opened, err := suite.Open(ctx, s.URL())
	if err != nil {
		b.Fatal(err)
	}
	var lost, failed sync.Map
	c, err := lock.New(wrap(opened), lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
		Lost:        func(_ context.Context, e lock.Event) { lost.Store(e.Name, e.Err) },
		RenewFailed: func(_ context.Context, e lock.Event) { failed.Store(e.Name, e.Err) },
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
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(leases), "heap-B/lease")

	from := sampleOf(b, admin)
	start := time.Now()
	peak, stood, looked := 0, time.Duration(0), start
	for tick := time.NewTicker(10 * time.Millisecond); time.Since(start) < 2*ttl; <-tick.C { // the length of the measurement
		peak, stood, looked = max(peak, runtime.NumGoroutine()), max(stood, time.Since(looked)), time.Now()
	}
	took := time.Since(start).Seconds()
	to := sampleOf(b, admin)
	b.ReportMetric(float64(peak-goroutines), "goroutines-at-most")
	b.ReportMetric(float64(to.commands-from.commands)/took, "commands/s")
	b.ReportMetric(float64(to.commands-from.commands)/float64(leases)/2, "commands/lease/TTL")
	b.ReportMetric((to.reads-from.reads)/took, "server-reads/s")
	b.ReportMetric((to.cpu-from.cpu)/took*1000, "server-cpu-ms/s")
	b.ReportMetric((to.own-from.own)/took*1000, "own-cpu-ms/s")
	b.ReportMetric(to.clients-1, "connections") // without the one that asks
	b.ReportMetric(float64(stood.Milliseconds()), "process-stood-still-ms")
	count := func(what string, m *sync.Map) (n int) {
		m.Range(func(k, v any) bool {
			if n++; n <= 3 {
				b.Logf("%s: %v: %v", what, k, v)
			}
			return true
		})
		return n
	}
	b.ReportMetric(float64(count("a renewal failed", &failed)), "leases-with-a-failed-renewal")
	if n := count("lost", &lost); n > 0 {
		b.Errorf("%d of %d leases were lost; this process stood still for up to %v", n, leases, stood)
	}
	for w := range 16 { // Close would not wait for so many on a busy machine
		wg.Go(func() {
			for i := w; i < leases; i += 16 {
				_ = held[i].Unlock(ctx)
			}
		})
	}
	wg.Wait()
	if err := c.Close(ctx); err != nil {
		b.Fatal(err)
	}
}

// sample is the resources that have been used so far.
type sample struct {
	commands            int64
	reads, cpu, clients float64 // of the server: reads from connections, seconds, now
	own                 float64 // seconds of this process
}

func sampleOf(b *testing.B, admin *goredis.Client) (s sample) {
	ctx := context.Background()
	var err error
	if s.commands, err = redistest.Commands(ctx, admin); err != nil {
		b.Fatal(err)
	}
	all, err := admin.Info(ctx, "stats", "cpu", "clients").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(all) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "total_reads_processed":
			s.reads = v
		case "used_cpu_user", "used_cpu_sys":
			s.cpu += v
		case "connected_clients":
			s.clients = v
		}
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	s.own = time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	return s
}
