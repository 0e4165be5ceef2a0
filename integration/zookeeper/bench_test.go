package zookeeper_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// delay is that of each direction: a round trip of 40 ms, beside which the time
// that anything else takes does not count.
const delay = 20 * time.Millisecond

// side is one of the two that are compared: it locks for one of its clients and
// returns how to unlock.
type side struct {
	name string
	lock func(ctx context.Context, client int, key string) (unlock func() error, err error)
}

const benchClients = 4

func ours(b *testing.B, addr string) side {
	var clients []*lock.Client
	for range benchClients {
		c, err := lock.Open(b.Context(), "zk://"+addr, lock.WithTTL(30*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close(context.Background()) })
		clients = append(clients, c)
	}
	return side{"zklock", func(ctx context.Context, i int, key string) (func() error, error) {
		l, err := clients[i].Mutex(key).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Unlock(context.Background()) }, nil
	}}
}

func theirs(b *testing.B, addr string) side {
	var conns []*zk.Conn
	for range benchClients {
		c, _, err := zk.Connect([]string{addr}, 30*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(c.Close)
		conns = append(conns, c)
	}
	return side{"zk.Lock", func(_ context.Context, i int, key string) (func() error, error) {
		l := zk.NewLock(conns[i], "/peer-"+strings.ReplaceAll(key, "/", "-"), zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}}
}

// BenchmarkRoundTrips reports how many round trips a lock and its unlock take on a
// free key (rtt), and how many pass from an unlock to the return of the next
// holder's lock (p50-rtt, p99-rtt), with so many waiting.
func BenchmarkRoundTrips(b *testing.B) {
	s := provision.NewZooKeeper(b, provision.ZooKeeper38)
	p := provision.NewProxy(b, s.Addr())
	sides := []side{ours(b, p.Addr()), theirs(b, p.Addr())}
	for _, sd := range sides { // sessions are open, and names known
		for i := range benchClients {
			unlock, err := sd.lock(b.Context(), i, "warm")
			if err == nil {
				err = unlock()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	p.Delay(delay)
	defer p.Delay(0)
	for _, sd := range sides {
		b.Run("uncontended/"+sd.name, func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				start := time.Now()
				unlock, err := sd.lock(b.Context(), 0, "warm")
				if err == nil {
					err = unlock()
				}
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(start))
			}
			report(b, all, "")
		})
		for _, n := range []int{16, 64} {
			b.Run("hand-off/"+strconv.Itoa(n)+"/"+sd.name, func(b *testing.B) { handOff(b, sd, n) })
		}
	}
}

// handOff keeps n waiting and measures b.N hand-overs between different waiters.
func handOff(b *testing.B, sd side, n int) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var (
		mu       sync.Mutex
		released time.Time
		last     = -1
		gaps     []time.Duration
		enough   = make(chan struct{})
		wg       sync.WaitGroup
	)
	want := max(b.N, 3*n)
	for i := range n + 1 {
		wg.Go(func() {
			for ctx.Err() == nil {
				unlock, err := sd.lock(ctx, i%benchClients, fmt.Sprintf("hand-off-%d-%d", n, b.N))
				at := time.Now()
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				mu.Lock()
				if last >= 0 && last != i {
					gaps = append(gaps, at.Sub(released))
				}
				if len(gaps) == n+want {
					close(enough)
				}
				mu.Unlock()
				time.Sleep(time.Millisecond) // the work
				mu.Lock()
				last, released = i, time.Now()
				mu.Unlock()
				if err := unlock(); err != nil {
					b.Error(err)
				}
				time.Sleep(5 * time.Millisecond) // between two pieces of work
			}
		})
	}
	<-enough
	mu.Lock()
	measured := slices.Clone(gaps[n:]) // without the time in which the queue forms
	mu.Unlock()
	cancel()
	wg.Wait()
	report(b, measured, "gap-")
}

func report(b *testing.B, all []time.Duration, prefix string) {
	slices.Sort(all)
	rtt := func(d time.Duration) float64 { return float64(d) / float64(2*delay) }
	b.ReportMetric(rtt(all[len(all)/2]), prefix+"p50-rtt")
	b.ReportMetric(rtt(all[len(all)*99/100]), prefix+"p99-rtt")
	b.ReportMetric(0, "ns/op")
}
