package measure

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

const (
	heldFor   = 6  // TTLs, for which the leases are observed
	heldWidth = 64 // locks at a time
)

// probeHeld holds N leases with one client for heldFor TTLs.
func probeHeld(ctx context.Context, m *Measurement, t Target, s Scenario) error {
	var lost atomic.Int64
	c, err := lock.Open(ctx, t.URL, lock.WithTTL(s.TTL), lock.WithLogger(nil),
		lock.WithObserver(&lock.Observer{Lost: func(context.Context, lock.Event) { lost.Add(1) }}))
	if err != nil {
		return err
	}
	defer closeClient(ctx, c)
	prefix := "bench-held-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	empty, calm := memory(), runtime.NumGoroutine()
	held := make([]*lock.Lease, s.N)
	defer runtime.KeepAlive(held) // a lease that is garbage is reported as forgotten
	err = inParallel(ctx, s.N, heldWidth, func(ctx context.Context, i int) (err error) {
		held[i], err = c.Mutex(prefix + strconv.Itoa(i)).Lock(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := pause(ctx, s.TTL); err != nil { // each was renewed
		return err
	}
	n := float64(s.N)
	m.figure("kB each", (memory()-empty)/1000/n)
	m.figure("goroutines each", float64(runtime.NumGoroutine()-calm)/n)
	before, err := t.spent(ctx)
	if err != nil {
		return err
	}
	counted, err := t.count(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, heldFor*s.TTL); err != nil {
		return err
	}
	m.Took = time.Since(began)
	after, err := t.spent(ctx)
	if err != nil {
		return err
	}
	counts, err := t.count(ctx)
	if err != nil {
		return err
	}
	used := after.since(before)
	percent := func(name string, d *time.Duration) {
		if d != nil {
			m.figure(name, 100*d.Seconds()/m.Took.Seconds())
		}
	}
	percent("client, % of a core", used.Client)
	percent("server, % of a core", used.Server)
	if d := difference(counted.operations, counts.operations); d != nil {
		m.figure("operations a second", float64(*d)/m.Took.Seconds())
	}
	m.figure("leases lost", float64(lost.Load()))
	return nil
}

// memory returns the bytes of the heap and of stacks that are in use.
func memory() float64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc + s.StackInuse)
}
