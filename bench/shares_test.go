package bench

import (
	"context"
	"math"
	"math/rand/v2"
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

// BenchmarkShares measures read locks and permits of each service that grants them, once
// whatever b.N is. -documents writes the figures.
func BenchmarkShares(b *testing.B) {
	for _, s := range services {
		b.Run(s.name, func(b *testing.B) {
			url := s.start(b).url
			for b.Loop() {
				delayed, closeProxies, err := measure.Delayed(url, delay)
				if err != nil {
					b.Fatal(err)
				}
				figures := Shares{Name: s.name}
				if !sharesFar(b, delayed, &figures) {
					closeProxies()
					b.Skip("it grants no shares")
				}
				sharesNear(b, url, &figures)
				shares = append(shares, figures)
				if s.name == "etcd" {
					shares = append(shares, recipeFar(b, addrOf(delayed)))
				}
				closeProxies()
			}
		})
	}
}

// crowd has the clients of one measurement.
type crowd struct {
	b   *testing.B
	ctx context.Context //nolint:containedctx // of one measurement
	cs  []*lock.Client
}

func openCrowd(b *testing.B, url string) (_ *crowd, closeAll func()) {
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	c := &crowd{b: b, ctx: ctx}
	for range shareClients {
		one, err := lock.Open(ctx, url)
		if err != nil {
			b.Fatal(err)
		}
		c.cs = append(c.cs, one)
	}
	return c, func() {
		for _, one := range c.cs {
			if err := one.Close(ctx); err != nil {
				b.Error(err)
			}
		}
		cancel()
	}
}

func (c *crowd) rw(i int, name string) *lock.RWMutex { return c.cs[i%shareClients].RWMutex(name) }

// must returns the lease. If there is none it ends the measurement.
func (c *crowd) must(l *lock.Lease, err error) *lock.Lease {
	if err != nil {
		c.b.Error(err)
		panic(err)
	}
	return l
}

func (c *crowd) end(l *lock.Lease) { c.must(l, l.Unlock(c.ctx)) }

// waiters polls until n requests wait.
func (c *crowd) waiters(name string, n int) {
	await(c.b, func() bool {
		info, err := c.cs[0].Inspect(c.ctx, name)
		return err == nil && len(info.Waiters) == n
	})
}

// sharesFar measures round trips. It returns false if the service grants no shares.
func sharesFar(b *testing.B, url string, s *Shares) bool {
	c, closeAll := openCrowd(b, url)
	defer closeAll()
	if caps := c.cs[0].Capabilities(); !caps.Shared || !caps.Permits {
		return false
	}
	rtt := median(20, func() time.Duration {
		start := time.Now()
		if err := c.cs[0].Ping(c.ctx); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	})
	for i := range shareClients {
		c.end(c.must(c.rw(i, "first").RLock(c.ctx))) // opens what the first use opens
	}
	s.Alone = ratio(rtt, median(100, func() time.Duration {
		start := time.Now()
		c.end(c.must(c.rw(0, "alone").RLock(c.ctx)))
		return time.Since(start)
	}))
	s.Readers = ratio(rtt, median(15, func() time.Duration {
		writer := c.must(c.rw(0, "many").Lock(c.ctx))
		return lastOf(func(granted func()) func() {
			l := c.must(c.rw(rand.IntN(shareClients), "many").RLock(c.ctx))
			granted()
			return func() { c.end(l) }
		}, func() {
			c.waiters("many", shareReaders)
		}, func() { c.end(writer) })
	}))
	s.Writers = ratio(rtt, median(20, func() time.Duration {
		first := c.must(c.rw(0, "pass").Lock(c.ctx))
		got := make(chan time.Time)
		go func() {
			l := c.must(c.rw(1, "pass").Lock(c.ctx))
			got <- time.Now()
			c.end(l)
		}()
		c.waiters("pass", 1)
		start := time.Now()
		c.end(first)
		return (<-got).Sub(start)
	}))
	s.Permits = ratio(rtt, c.permits().free)
	return true
}

// lastOf runs read in each of the readers at once, calls release when waiting has returned, and
// returns the time from then until the last reader has called granted. The readers end when all
// are granted.
func lastOf(read func(granted func()) (end func()), waiting, release func()) time.Duration {
	var in, ended sync.WaitGroup
	in.Add(shareReaders)
	for range shareReaders {
		ended.Go(func() {
			end := read(in.Done)
			in.Wait()
			end()
		})
	}
	waiting()
	start := time.Now()
	ended.Go(release) // a reader may have the lock before it returns
	in.Wait()
	took := time.Since(start)
	ended.Wait()
	return took
}

// sharesNear measures use, fairness and the wait of a writer.
func sharesNear(b *testing.B, url string, s *Shares) {
	c, closeAll := openCrowd(b, url)
	defer closeAll()
	p := c.permits()
	s.InUse, s.Jain = p.inUse, p.jain

	// A writer among readers that never rest waits for those before it.
	resting, rest := context.WithCancel(c.ctx)
	saturating := readers(shareReaders, func(i int) {
		for resting.Err() == nil {
			l := c.must(c.rw(i, "busy").RLock(c.ctx))
			time.Sleep(readerHold) // the work
			c.end(l)
		}
	})
	time.Sleep(readerHold)
	wait := median(15, func() time.Duration {
		time.Sleep(time.Duration(rand.Int64N(int64(readerHold)))) // so that it comes at any time of the readers' work
		start := time.Now()
		l := c.must(c.rw(0, "busy").Lock(c.ctx))
		took := time.Since(start)
		c.end(l)
		return took
	})
	rest()
	saturating.Wait()
	s.Writer = ratio(readerHold, wait)
}

// permitUse is how a semaphore of 8 is used by 64 workers.
type permitUse struct {
	inUse, jain float64
	free        time.Duration // of a permit, between two workers
}

func (c *crowd) permits() permitUse {
	turns := make([]float64, shareReaders)
	var used time.Duration
	var mu sync.Mutex
	start := time.Now()
	over := start.Add(4 * *each)
	readers(shareReaders, func(i int) {
		s := c.cs[i%shareClients].Semaphore("permits", sharePermits)
		for time.Now().Before(over) {
			l := c.must(s.Acquire(c.ctx, 1))
			from := time.Now()
			time.Sleep(permitHold) // the work
			mu.Lock()
			used += time.Since(from)
			turns[i]++
			mu.Unlock()
			c.end(l)
		}
	}).Wait()
	all := sharePermits * time.Since(start)
	var sum, squares float64
	for _, n := range turns {
		sum += n
		squares += n * n
	}
	return permitUse{
		inUse: ratio(all, used), jain: sum * sum / (squares * float64(len(turns))),
		free: time.Duration(float64(all-used) / sum),
	}
}

func ratio(unit, d time.Duration) float64 { return float64(d) / float64(unit) }

// recipeFar measures the read/write lock of etcd's own client.
func recipeFar(b *testing.B, addr string) Shares {
	none := math.NaN()
	s := Shares{Name: "etcd recipes.RWMutex", Permits: none, Writers: none, InUse: none, Jain: none, Writer: none}
	c, err := etcdClient(addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	session, err := concurrency.NewSession(c, concurrency.WithTTL(ttl))
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	must := func(err error) {
		if err != nil {
			b.Error(err)
			panic(err)
		}
	}
	rtt := median(20, func() time.Duration {
		start := time.Now()
		_, err := c.Get(b.Context(), "ping")
		must(err)
		return time.Since(start)
	})
	s.Alone = ratio(rtt, median(100, func() time.Duration {
		start := time.Now()
		m := recipe.NewRWMutex(session, "recipe/alone")
		must(m.RLock())
		must(m.RUnlock())
		return time.Since(start)
	}))
	s.Readers = ratio(rtt, median(7, func() time.Duration {
		writer := recipe.NewRWMutex(session, "recipe/many")
		must(writer.Lock())
		return lastOf(func(granted func()) func() {
			m := recipe.NewRWMutex(session, "recipe/many")
			must(m.RLock())
			granted()
			return func() { must(m.RUnlock()) }
		}, func() {
			await(b, func() bool {
				r, err := c.Get(b.Context(), "recipe/many/read", clientv3.WithPrefix(), clientv3.WithCountOnly())
				return err == nil && r.Count == shareReaders
			})
			time.Sleep(10 * delay) // the last of them looks for the writer
		}, func() { must(writer.Unlock()) })
	}))
	return s
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
