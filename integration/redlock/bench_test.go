package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	rsgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

// locker is one client of a library: lock returns how to unlock.
type locker func(ctx context.Context, key string) (unlock func() error, err error)

const benchClients = 4

// BenchmarkRedlock measures this library and redsync on the same five nodes: an
// uncontended lock and unlock, and hand-offs between 16 and 64 waiters of four
// clients. With a delay of 2 ms each way the figures count round trips; without, they
// are microseconds. Nothing is asserted.
func BenchmarkRedlock(b *testing.B) {
	s := newSet(b)
	for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
		for _, lib := range []struct {
			name string
			open func(l links) locker
		}{{"ours", s.ours}, {"redsync", s.redsync}} {
			var clients []locker
			for range benchClients {
				l := s.links()
				clients = append(clients, lib.open(l))
				l.Delay(delay)
			}
			name := fmt.Sprintf("rtt=%v/%s", 2*delay, lib.name)
			b.Run(name+"/uncontended", func(b *testing.B) { s.uncontended(b, clients[0], 2*delay) })
			for _, waiters := range []int{16, 64} {
				b.Run(fmt.Sprintf("%s/waiters=%d", name, waiters), func(b *testing.B) { s.contended(b, clients, waiters, 2*delay) })
			}
		}
	}
}

func (s *set) ours(l links) locker {
	c, err := lock.Open(s.t.Context(), urlOf(l.proxies), lock.WithTTL(30*time.Second))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return func(ctx context.Context, key string) (func() error, error) {
		l, err := c.Mutex(key).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Unlock(context.WithoutCancel(ctx)) }, nil
	}
}

func (s *set) redsync(l links) locker {
	var pools []rsredis.Pool
	for _, p := range l.proxies {
		c := goredis.NewClient(&goredis.Options{Addr: p.Addr(), PoolSize: 64})
		s.t.Cleanup(func() { _ = c.Close() })
		pools = append(pools, rsgoredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, key string) (func() error, error) {
		m := rs.NewMutex(key, redsync.WithTries(1<<30))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error { _, err := m.UnlockContext(context.WithoutCancel(ctx)); return err }, nil
	}
}

// report gives a quantile in round trips, or in microseconds on loopback.
func report(b *testing.B, what string, took []time.Duration, rtt time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	unit := func(d time.Duration) float64 { return float64(d.Microseconds()) }
	suffix := "-µs"
	if rtt > 0 {
		unit, suffix = func(d time.Duration) float64 { return float64(d) / float64(rtt) }, "-RTT"
	}
	b.ReportMetric(unit(took[len(took)/2]), what+"-p50"+suffix)
	b.ReportMetric(unit(took[len(took)*99/100]), what+"-p99"+suffix)
}

func (s *set) uncontended(b *testing.B, c locker, rtt time.Duration) {
	key := fmt.Sprintf("bench/%s/%d", b.Name(), time.Now().UnixNano())
	var took []time.Duration
	for b.Loop() {
		for range 200 {
			start := time.Now()
			unlock, err := c(b.Context(), key)
			if err == nil {
				err = unlock()
			}
			if err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
	}
	report(b, "lock+unlock", took, rtt)
}

// contended keeps the waiters at it for some seconds: hold 1 ms, think 5 ms for the
// gaps; then, saturated, without either for the fairness.
func (s *set) contended(b *testing.B, clients []locker, waiters int, rtt time.Duration) {
	for b.Loop() {
		gaps, _, n, commands := s.contend(b, clients, waiters, 1*time.Millisecond, 5*time.Millisecond)
		report(b, "hand-off", gaps, rtt)
		b.ReportMetric(float64(commands)/float64(n)/size, "commands/node/acquisition")
		_, counts, _, _ := s.contend(b, clients, waiters, 0, 0)
		b.ReportMetric(jain(counts), "Jain")
	}
}

func (s *set) contend(b *testing.B, clients []locker, waiters int, hold, think time.Duration) (gaps []time.Duration, counts []int, n int, commands int64) {
	key := fmt.Sprintf("bench/%s/%d", strings.ReplaceAll(b.Name(), "=", "-"), time.Now().UnixNano())
	before, err := s.commands(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
	defer cancel()
	counts = make([]int, waiters)
	var released time.Time // when the last holder began to unlock; guarded by the lock
	last := -1
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range waiters {
		wg.Go(func() {
			for ctx.Err() == nil {
				unlock, err := clients[w%len(clients)](ctx, key)
				if err != nil {
					if ctx.Err() == nil {
						b.Log(err) // the machine stood still; what was measured is not worth much
					}
					continue
				}
				now := time.Now()
				mu.Lock()
				if last >= 0 && last != w && ctx.Err() == nil {
					gaps = append(gaps, now.Sub(released))
				}
				counts[w]++
				n++
				mu.Unlock()
				if hold > 0 {
					time.Sleep(hold)
				}
				mu.Lock()
				released, last = time.Now(), w
				mu.Unlock()
				_ = unlock() // a lease lost on a busy machine does not end the measurement
				if think > 0 {
					time.Sleep(think)
				}
			}
		})
	}
	wg.Wait()
	after, err := s.commands(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return gaps, counts, n, (after - before) * size
}

// jain is 1 if all had the same, 1/n if one had all.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, c := range counts {
		sum += float64(c)
		squares += float64(c) * float64(c)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / float64(len(counts)) / squares
}
