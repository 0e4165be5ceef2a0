package suite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// Cycles measures b.N cycles of one lock: waiters in some clients lock, unlock and lock
// again. It measures when all of them wait, and reports cycles/s. If count is not nil,
// it returns the requests at the server so far, and Cycles reports requests/cycle.
func Cycles(b *testing.B, url, key string, clientCount, waiters int, count func() (int64, error)) {
	waiting := make(chan struct{}, waiters)
	var full atomic.Bool
	observer := lock.WithObserver(&lock.Observer{Waiting: func(context.Context, lock.Event) {
		if !full.Load() {
			waiting <- struct{}{}
		}
	}})
	var clients []*lock.Client
	for range clientCount {
		c, err := lock.Open(b.Context(), url, lock.WithTTL(30*time.Second), observer)
		if err != nil {
			b.Fatal(err)
		}
		clients = append(clients, c)
	}
	defer func() {
		for _, c := range clients {
			if err := c.Close(context.Background()); err != nil {
				b.Error(err)
			}
		}
	}()
	l, err := clients[0].Mutex(key).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var done atomic.Int64
	enough := make(chan struct{})
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			m := clients[i%clientCount].Mutex(key)
			for ctx.Err() == nil {
				l, err := m.Lock(ctx)
				if err == nil {
					err = l.Unlock(context.WithoutCancel(ctx))
				}
				if err != nil && ctx.Err() == nil {
					b.Error(err)
					return
				}
				if done.Add(1) == int64(b.N) {
					close(enough)
				}
			}
		})
	}
	for range waiters {
		select {
		case <-waiting:
		case <-time.After(5 * time.Minute):
			b.Fatal("the waiters do not come")
		}
	}
	full.Store(true)
	requests := func() int64 {
		if count == nil {
			return 0
		}
		n, err := count()
		if err != nil {
			b.Error(err)
		}
		return n
	}
	before := requests()
	b.ResetTimer()
	if err := l.Unlock(b.Context()); err != nil {
		b.Fatal(err)
	}
	select {
	case <-enough:
	case <-time.After(5 * time.Minute):
		b.Error("too slow")
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	if n := requests() - before; count != nil {
		b.ReportMetric(float64(n)/float64(b.N), "requests/cycle")
	}
	b.ReportMetric(0, "ns/op")
	cancel()
	wg.Wait()
}
