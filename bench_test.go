package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// BenchmarkLockUnlock is what the core adds to a backend that takes next to no
// time itself; "driver" is that backend alone.
func BenchmarkLockUnlock(b *testing.B) {
	ctx := context.Background()
	b.Run("driver", func(b *testing.B) {
		m := memlock.New()
		defer m.Close(ctx)
		req := backend.Request{Key: "k", Owner: "0123456789abcdef0123456789abcdef", TTL: lock.DefaultTTL}
		b.ReportAllocs()
		for b.Loop() {
			g, err := m.TryAcquire(ctx, req)
			if err != nil {
				b.Fatal(err)
			}
			if err := g.Release(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("lock", func(b *testing.B) {
		c, err := lock.Open(ctx, "mem:")
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close(ctx)
		m := c.Mutex("k")
		b.ReportAllocs()
		for b.Loop() {
			l, err := m.Lock(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkErr asks whether a lease is held, beside a context of package context.
func BenchmarkErr(b *testing.B) {
	c, err := lock.Open(b.Context(), "mem:")
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(context.Background())
	l, err := c.Mutex("k").Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for name, ctx := range map[string]context.Context{"context": ctx, "lease": l.Context()} {
		b.Run("Err/"+name, func(b *testing.B) {
			for b.Loop() {
				_ = ctx.Err()
			}
		})
		b.Run("Done/"+name, func(b *testing.B) {
			for b.Loop() {
				_ = ctx.Done()
			}
		})
	}
}

// BenchmarkManyLeases holds many leases of one client for a TTL, with a backend that
// takes a while for each request and serves some at a time, and reports what a lease
// costs at rest and how many requests renew them.
func BenchmarkManyLeases(b *testing.B) {
	for _, together := range []bool{false, true} {
		b.Run(fmt.Sprintf("together=%v", together), func(b *testing.B) {
			for b.Loop() {
				if testing.Short() { // does it work?
					manyLeases(b, 1000, 2*time.Second, together)
				} else {
					manyLeases(b, 100_000, time.Minute, together) // all are acquired before the first is due
				}
			}
		})
	}
}

func manyLeases(b *testing.B, leases int, ttl time.Duration, together bool) {
	far := &distant{Backend: memlock.New(), slots: make(chan struct{}, 20)}
	var service backend.Backend = far
	if together {
		service = batches{far}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	lost := 0
	var mu sync.Mutex
	c, err := lock.New(service, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
		Lost: func(context.Context, lock.Event) { mu.Lock(); defer mu.Unlock(); lost++ },
	}))
	if err != nil {
		b.Fatal(err)
	}
	held := make([]*lock.Lease, leases)
	for i := range held {
		if held[i], err = c.Mutex(strconv.Itoa(i)).TryLock(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(leases), "heap-B/lease")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
	start, peak := time.Now(), 0
	for tick := time.NewTicker(10 * time.Millisecond); time.Since(start) < ttl; <-tick.C { // the length of the measurement
		peak = max(peak, runtime.NumGoroutine())
	}
	took := time.Since(start).Seconds()
	b.ReportMetric(float64(peak-goroutines), "goroutines-at-most")
	b.ReportMetric(float64(far.renewals.Load())/took, "renewals/s")
	b.ReportMetric(float64(far.requests.Load())/took, "requests/s")
	for _, l := range held {
		_ = l.Unlock(b.Context()) // those that were lost say so
	}
	mu.Lock()
	b.ReportMetric(float64(lost), "lost")
	mu.Unlock()
	if err := c.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// distant is a memlock to which a renewal takes as long as to a service in the next
// room, with so many connections.
type distant struct {
	*memlock.Backend
	slots              chan struct{}
	renewals, requests atomic.Int64
}

// request takes its time, and a little more for each renewal in it.
func (d *distant) request(ctx context.Context, renewals int) error {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.slots }()
	d.requests.Add(1)
	d.renewals.Add(int64(renewals))
	time.Sleep(2*time.Millisecond + time.Duration(renewals)*10*time.Microsecond)
	return nil
}

func (d *distant) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	g, err := d.Backend.TryAcquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return &distantGrant{g, d}, nil
}

type distantGrant struct {
	backend.Grant
	d *distant
}

func (g *distantGrant) Renew(ctx context.Context, ttl time.Duration) error {
	if err := g.d.request(ctx, 1); err != nil {
		return err
	}
	return g.Grant.Renew(ctx, ttl)
}

type batches struct{ *distant }

func (b batches) RenewBatch(ctx context.Context, all []backend.Renewal) []error {
	errs := make([]error, len(all))
	failed := b.request(ctx, len(all))
	for i, r := range all {
		if errs[i] = failed; failed == nil {
			errs[i] = r.Grant.(*distantGrant).Grant.Renew(ctx, r.TTL)
		}
	}
	return errs
}
