package redislock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Round trips are counted at the server as scripts called by clients: what a
// script calls is counted under its own name.

func TestUncontendedIsTwoCommands(t *testing.T) {
	addr := private(t)
	b, c := openURL(t, "redis://"+addr), client(t, addr)
	must(t, take(t, b, request("k")).Release(t.Context())) // connect
	before, all := calls(t, c, "evalsha", "eval"), calls(t, c, "hello", "ping", "wait", "script|load")
	const n = 50
	for i := range n {
		r := request("k")
		if i%2 == 0 {
			must(t, take(t, b, r).Release(t.Context()))
			continue
		}
		g, err := b.Acquire(t.Context(), r)
		must(t, err)
		must(t, g.Release(t.Context()))
	}
	if got := calls(t, c, "evalsha", "eval") - before; got != 2*n {
		t.Errorf("%d scripts for %d cycles", got, n)
	}
	if got := calls(t, c, "hello", "ping", "wait", "script|load") - all; got != 0 {
		t.Errorf("%d other commands", got)
	}
}

func TestHandOffCommands(t *testing.T) {
	addr := private(t)
	c := client(t, addr)
	for _, waiters := range []int{16, 64} {
		var bs []*Backend
		for range 4 {
			bs = append(bs, openURL(t, "redis://"+addr))
		}
		cycles := 100 * waiters
		var todo atomic.Int64
		todo.Store(int64(cycles))
		var wg sync.WaitGroup
		counts := make([]int, waiters)
		before, start := calls(t, c, "evalsha", "eval"), time.Now()
		for w := range waiters {
			wg.Go(func() {
				for todo.Add(-1) >= 0 {
					g, err := bs[w%4].Acquire(context.Background(), request("k"))
					if err != nil {
						t.Error(err)
						return
					}
					counts[w]++
					if err := released(g); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(start)
		per := float64(calls(t, c, "evalsha", "eval")-before) / float64(cycles)
		sum, squares := 0.0, 0.0
		for _, n := range counts {
			sum, squares = sum+float64(n), squares+float64(n)*float64(n)
		}
		jain := sum * sum / (float64(waiters) * squares)
		t.Logf("%d waiters: %.3f scripts and %v a cycle, fairness (Jain) %.4f", waiters, per, took/time.Duration(cycles), jain)
		if per > 2.02 {
			t.Errorf("%d waiters: %.2f scripts a cycle", waiters, per)
		}
		if jain < 0.99 {
			t.Errorf("%d waiters: want a fairness of 0.99 at least, got %.4f: %v cycles", waiters, jain, counts)
		}
	}
}

// While its holder renews, no waiter polls more than once in a TTL.
func TestIdleCost(t *testing.T) {
	t.Parallel() // mostly it waits
	addr := private(t)
	c := client(t, addr)
	b, b2 := openURL(t, "redis://"+addr), openURL(t, "redis://"+addr)
	const ttl, waiters, most = 4 * time.Second, 4, 12 // renewals, in one TTL and a half
	r := request("k")
	r.TTL = ttl
	g := take(t, b, r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var chans []<-chan acquired
	for i := range waiters {
		chans = append(chans, enqueue(ctx, t, []*Backend{b, b2}[i%2], request("k")))
	}
	before, others := calls(t, c, "evalsha", "eval"), calls(t, c, "ping")
	renewals := 0
	tick := time.NewTicker(ttl / 8)
	defer tick.Stop()
	for renewals < most {
		<-tick.C
		must(t, g.Renew(t.Context(), ttl))
		renewals++
	}
	polls := calls(t, c, "evalsha", "eval") - before - renewals
	t.Logf("%d polls of %d waiters in 1.5 TTLs", polls, waiters)
	if polls > waiters*2 {
		t.Errorf("%d polls of %d waiters in 1.5 TTLs", polls, waiters)
	}
	if n := calls(t, c, "ping") - others; n != 0 {
		t.Errorf("%d pings", n)
	}
	cancel()
	for _, ch := range chans {
		<-ch
	}
	must(t, g.Release(t.Context()))
}

func BenchmarkPing(b *testing.B) {
	k := newBackend(b, newPrefix())
	for b.Loop() {
		_ = k.svc.srv.Client.Ping(context.Background())
	}
}

func BenchmarkLockUnlock(b *testing.B) {
	k := newBackend(b, newPrefix())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		g, err := k.TryAcquire(ctx, request("k"))
		must(b, err)
		must(b, g.Release(ctx))
	}
}

// BenchmarkHandOff shows that a cycle costs the same, however many wait.
func BenchmarkHandOff(b *testing.B) {
	for _, waiters := range []int{16, 64, 2_000, 10_000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			p := newPrefix()
			bs := []*Backend{newBackend(b, p), newBackend(b, p), newBackend(b, p), newBackend(b, p)}
			var todo atomic.Int64
			todo.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for w := range waiters {
				wg.Go(func() {
					for todo.Add(-1) >= 0 {
						g, err := bs[w%4].Acquire(context.Background(), request("k"))
						if err != nil {
							b.Error(err)
							return
						}
						if err := g.Release(context.Background()); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
