package bench

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// The load of BenchmarkShares.
const (
	shareClients = 4
	shareReaders = 64
	shareHold    = 50 * time.Millisecond
	sharePermits = 8
)

// BenchmarkShares measures read locks and permits of each service that grants them, through
// links with a delay, once whatever b.N is. It reports medians in round trips, and for a
// semaphore that 64 workers share what part of the permits is in use and how fairly.
func BenchmarkShares(b *testing.B) {
	for _, s := range services {
		b.Run(s.name, func(b *testing.B) {
			url := s.start(b)
			for b.Loop() {
				delayed, closeProxies, err := measure.Delayed(url, delay)
				if err != nil {
					b.Fatal(err)
				}
				measureShares(b, delayed)
				if s.name == "etcd" {
					measureRecipe(b, addrOf(delayed))
				}
				closeProxies()
			}
		})
	}
}

func measureShares(b *testing.B, url string) {
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	var cs []*lock.Client
	for range shareClients {
		c, err := lock.Open(ctx, url)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(ctx))
		cs = append(cs, c)
	}
	if caps := cs[0].Capabilities(); !caps.Shared || !caps.Permits {
		b.Skipf("%s grants no shares", caps.Name)
	}
	rtt := median(20, func() time.Duration {
		start := time.Now()
		if err := cs[0].Ping(ctx); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	})
	report := func(name string, d time.Duration) {
		b.ReportMetric(float64(d)/float64(rtt), "RTT/"+name)
	}
	must := func(l *lock.Lease, err error) *lock.Lease {
		if err != nil {
			b.Error(err)
			panic(err)
		}
		return l
	}
	end := func(l *lock.Lease) { must(l, l.Unlock(ctx)) }

	rw := func(i int, name string) *lock.RWMutex { return cs[i%shareClients].RWMutex(name) }
	end(must(rw(0, "first").RLock(ctx))) // opens what the first use opens
	report("uncontended", median(100, func() time.Duration {
		start := time.Now()
		end(must(rw(0, "alone").RLock(ctx)))
		return time.Since(start)
	}))
	report("64-readers-after-a-writer", median(7, func() time.Duration {
		writer := must(rw(0, "many").Lock(ctx))
		var last time.Duration
		var mu sync.Mutex
		var start time.Time
		granted := readers(shareReaders, func(i int) {
			l := must(rw(i, "many").RLock(ctx))
			mu.Lock()
			last = max(last, time.Since(start))
			mu.Unlock()
			end(l)
		})
		await(b, func() bool {
			info, err := cs[0].Inspect(ctx, "many")
			return err == nil && len(info.Waiters) == shareReaders
		})
		mu.Lock()
		start = time.Now()
		mu.Unlock()
		end(writer)
		granted.Wait()
		return last
	}))
	report("writer-to-writer", median(20, func() time.Duration {
		first := must(rw(0, "pass").Lock(ctx))
		got := make(chan time.Time)
		go func() {
			l := must(rw(1, "pass").Lock(ctx))
			got <- time.Now()
			end(l)
		}()
		await(b, func() bool {
			info, err := cs[0].Inspect(ctx, "pass")
			return err == nil && len(info.Waiters) == 1
		})
		start := time.Now()
		end(first)
		return (<-got).Sub(start)
	}))

	// A writer among readers that never rest waits for those before it.
	resting, rest := context.WithCancel(ctx)
	saturating := readers(shareReaders, func(i int) {
		for resting.Err() == nil {
			l := must(rw(i, "busy").RLock(ctx))
			time.Sleep(shareHold) // the work
			end(l)
		}
	})
	wait := median(15, func() time.Duration {
		time.Sleep(shareHold / 4) // so that it comes at any time of the readers' work
		start := time.Now()
		l := must(rw(0, "busy").Lock(ctx))
		took := time.Since(start)
		end(l)
		return took
	})
	rest()
	saturating.Wait()
	b.ReportMetric(float64(wait)/float64(shareHold), "holds/writer-among-readers")

	measurePermits(b, ctx, cs, must)
}

// measurePermits lets 64 workers share a semaphore of 8.
func measurePermits(b *testing.B, ctx context.Context, cs []*lock.Client, must func(*lock.Lease, error) *lock.Lease) {
	turns := make([]float64, shareReaders)
	var used time.Duration
	var mu sync.Mutex
	over := time.Now().Add(2 * *each)
	start := time.Now()
	readers(shareReaders, func(i int) {
		s := cs[i%shareClients].Semaphore("permits", sharePermits)
		for time.Now().Before(over) {
			l := must(s.Acquire(ctx, 1))
			from := time.Now()
			time.Sleep(shareHold) // the work
			mu.Lock()
			used += time.Since(from)
			turns[i]++
			mu.Unlock()
			must(l, l.Unlock(ctx))
		}
	}).Wait()
	b.ReportMetric(float64(used)/float64(time.Since(start))/sharePermits, "permits-in-use")
	var sum, squares float64
	for _, n := range turns {
		sum += n
		squares += n * n
	}
	b.ReportMetric(sum*sum/(squares*float64(len(turns))), "Jain")
}

// measureRecipe measures the read/write lock of etcd's own client.
func measureRecipe(b *testing.B, addr string) {
	c, err := etcdClient(addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	session := func() *concurrency.Session {
		s, err := concurrency.NewSession(c, concurrency.WithTTL(ttl))
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	one := session()
	defer one.Close()
	rtt := median(20, func() time.Duration {
		start := time.Now()
		if _, err := c.Get(b.Context(), "ping"); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	})
	alone := median(100, func() time.Duration {
		start := time.Now()
		m := recipe.NewRWMutex(one, "recipe/alone")
		if err := m.RLock(); err != nil {
			b.Fatal(err)
		}
		if err := m.RUnlock(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	})
	b.ReportMetric(float64(alone)/float64(rtt), "RTT/recipe/uncontended")
	many := median(7, func() time.Duration {
		writer := recipe.NewRWMutex(one, "recipe/many")
		if err := writer.Lock(); err != nil {
			b.Fatal(err)
		}
		var last time.Duration
		var mu sync.Mutex
		var start time.Time
		granted := readers(shareReaders, func(int) {
			m := recipe.NewRWMutex(one, "recipe/many")
			if err := m.RLock(); err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			last = max(last, time.Since(start))
			mu.Unlock()
			if err := m.RUnlock(); err != nil {
				b.Error(err)
			}
		})
		await(b, func() bool {
			r, err := c.Get(b.Context(), "recipe/many/read", clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && r.Count == shareReaders
		})
		time.Sleep(10 * delay) // the last of them looks for the writer
		mu.Lock()
		start = time.Now()
		mu.Unlock()
		if err := writer.Unlock(); err != nil {
			b.Fatal(err)
		}
		granted.Wait()
		return last
	})
	b.ReportMetric(float64(many)/float64(rtt), "RTT/recipe/64-readers-after-a-writer")
}

// readers runs f n times at once.
func readers(n int, f func(i int)) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	return &all
}

// await polls until cond holds.
func await(b *testing.B, cond func() bool) {
	for end := time.Now().Add(20 * time.Second); !cond(); {
		if time.Now().After(end) {
			b.Fatal("the waiters did not come within 20s")
		}
		time.Sleep(delay) // between two looks
	}
}

// median returns the median of n measurements.
func median(n int, f func() time.Duration) time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = f()
	}
	slices.Sort(all)
	return all[n/2]
}
