package redis_test

import (
	"context"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

var manyWaiters = flag.Int("waiters", 10_000, "waiters of BenchmarkManyWaiters")

// BenchmarkManyWaiters has many goroutines of one client wait for one key, which is
// held for ten seconds and then handed from one to the next. It reports the costs: memory
// of the process per waiter, connections, commands while idle, and the time of a
// hand-off. Time per operation has no meaning here.
func BenchmarkManyWaiters(b *testing.B) {
	s := provision.NewRedis(b, provision.AnyRedis, provision.Options{})
	for name, opts := range map[string][]lock.Option{
		"each in the queue": nil,
		"local hand-off":    {lock.WithLocalHandOff()},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				manyWaitersOf(b, s, opts)
			}
		})
	}
}

func manyWaitersOf(b *testing.B, s *provision.Server, opts []lock.Option) {
	idle, waiters := 10*time.Second, *manyWaiters
	if testing.Short() { // does it work?
		idle, waiters = time.Second, 200
	}
	ctx := context.Background()
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer admin.Close()
	var waiting atomic.Int64
	c, err := lock.Open(ctx, s.URL(), append(opts, lock.WithObserver(&lock.Observer{
		Waiting: func(context.Context, lock.Event) { waiting.Add(1) },
	}))...)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.Close(ctx); err != nil {
			b.Error(err)
		}
	}()
	m := c.Mutex("many-waiters")
	holder, err := m.Lock(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	var last atomic.Uint64
	for range waiters {
		all.Go(func() {
			l, err := m.Lock(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			if token, _ := l.Token(); last.Swap(token) >= token {
				b.Errorf("token %d after a greater one", token)
			}
			if err := l.Unlock(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	for waiting.Load() < int64(waiters) {
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/float64(waiters), "B/waiter")

	from := sampleOf(b, admin)
	time.Sleep(idle) // the length of the measurement
	to := sampleOf(b, admin)
	b.ReportMetric(float64(to.commands-from.commands)/idle.Seconds(), "idle-commands/s")
	b.ReportMetric(to.clients-1, "connections") // without the one that asks

	start := time.Now()
	if err := holder.Unlock(ctx); err != nil {
		b.Fatal(err)
	}
	all.Wait()
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(waiters), "µs/hand-off")
}
