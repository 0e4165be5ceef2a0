package otellock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/otellock"
)

func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		m := p.Mutex("k")
		l := must(t, m)
		p.want(t, map[string]int64{
			"interlock.lock.held{backend=mem mode=exclusive}": 1, "interlock.lock.lost{backend=mem mode=exclusive}": 0, "interlock.lock.renewal.failures{backend=mem mode=exclusive}": 0,
			"interlock.lock.wait.duration{backend=mem mode=exclusive outcome=acquired}": 1,
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = m.Lock(ctx)                                                // timeout
		_, _ = p.Mutex("k", lock.WithWait(time.Second)).Lock(t.Context()) // timeout, too
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = m.Lock(canceled)
		_, _ = m.TryLock(t.Context()) // locked
		_, _ = p.Mutex("").TryLock(t.Context())
		wait := make(chan error)
		go func() { _, err := m.Lock(t.Context()); wait <- err }()
		synctest.Wait()
		if n := p.metrics(t)["interlock.lock.waiting{backend=mem mode=exclusive}"]; n != 1 {
			t.Errorf("%d waiting, want 1", n)
		}
		_ = l.Unlock(canceled)
		if err := <-wait; err != nil {
			t.Fatal(err)
		}
		if _, err := p.other.Break(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		must(t, p.Mutex("held until Close"))
		closing, cancelClosing := context.WithCancel(t.Context())
		defer cancelClosing()
		if err := p.Close(closing); err != nil {
			t.Fatal(err)
		}
		_, _ = m.Lock(t.Context())
		p.want(t, map[string]int64{
			"interlock.lock.held{backend=mem mode=exclusive}": 0, "interlock.lock.waiting{backend=mem mode=exclusive}": 0,
			"interlock.lock.lost{backend=mem mode=exclusive}": 1, "interlock.lock.renewal.failures{backend=mem mode=exclusive}": 0,
			"interlock.lock.wait.duration{backend=mem mode=exclusive outcome=acquired}": 3,
			"interlock.lock.wait.duration{backend=mem mode=exclusive outcome=timeout}":  2,
			"interlock.lock.wait.duration{backend=mem mode=exclusive outcome=canceled}": 1,
			"interlock.lock.wait.duration{backend=mem mode=exclusive outcome=locked}":   1,
			"interlock.lock.wait.duration{backend=mem mode=exclusive outcome=invalid}":  1,
			"interlock.lock.wait.duration{backend=mem mode=exclusive outcome=closed}":   1,
			"interlock.lock.hold.duration{backend=mem mode=exclusive outcome=released}": 2,
			"interlock.lock.hold.duration{backend=mem mode=exclusive outcome=lost}":     1,
		})
	})
}

// Readers, writers and permits have series of their own.
func TestModes(t *testing.T) {
	p := newProbe(t)
	for _, m := range []lock.Mutex{p.RWMutex("a").RLocker(), p.RWMutex("b"), p.Semaphore("c", 2).Weighted(1)} {
		must(t, m)
	}
	got := p.metrics(t)
	for _, mode := range []string{"read", "exclusive", "permits"} {
		if n := got["interlock.lock.held{backend=mem mode="+mode+"}"]; n != 1 {
			t.Errorf("%d leases held of mode %s, want 1", n, mode)
		}
	}
}

func TestDurationsUnitsAndBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		l := must(t, p.other.Mutex("k"))
		time.AfterFunc(2*time.Second, func() { _ = l.Unlock(context.Background()) })
		l2, err := p.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		_ = l2.Unlock(t.Context())
		sums := map[string]float64{}
		for _, m := range p.collect(t) {
			if m.Description == "" || m.Unit == "" {
				t.Errorf("%s has unit %q and description %q", m.Name, m.Unit, m.Description)
			}
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
				d := h.DataPoints[0]
				sums[m.Name] = d.Sum
				if m.Unit != "s" || d.Bounds[0] != .0001 || d.Bounds[len(d.Bounds)-1] != 3600 {
					t.Errorf("%s: unit %s, bounds %v", m.Name, m.Unit, d.Bounds)
				}
			}
		}
		if sums["interlock.lock.wait.duration"] != 2 || sums["interlock.lock.hold.duration"] != 3 {
			t.Errorf("durations: %v", sums)
		}
	})
}

func TestNameAttribute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t, otellock.WithNameAttribute(func(name string) string {
			group, _, _ := strings.Cut(name, "/")
			return group
		}))
		for _, name := range []string{"orders/1", "orders/2", "/none"} {
			_ = must(t, p.Mutex(name)).Unlock(t.Context())
		}
		got := p.metrics(t)
		for series, want := range map[string]int64{
			"interlock.lock.hold.duration{backend=mem lock.name=orders mode=exclusive outcome=released}": 2,
			"interlock.lock.wait.duration{backend=mem lock.name=orders mode=exclusive outcome=acquired}": 2,
			"interlock.lock.hold.duration{backend=mem mode=exclusive outcome=released}":                  1,
			"interlock.lock.held{backend=mem lock.name=orders mode=exclusive}":                           0,
		} {
			if n, ok := got[series]; !ok || n != want {
				t.Errorf("%s is %d, want %d, in %v", series, n, want, got)
			}
		}
	})
}

// After random calls, panics, losses and Close, held and waiting are zero again.
func TestCountersReturnToZero(t *testing.T) {
	p := newProbe(t)
	crash := errors.New("a holder's panic")
	once := func() {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
		defer cancel()
		m := p.Mutex([]string{"a", "b"}[rand.N(2)])
		if rand.N(4) == 0 {
			m = lock.All(p.Mutex("a"), p.Mutex("b"))
		}
		defer func() {
			if r := recover(); r != nil && r != crash {
				panic(r)
			}
		}()
		_ = lock.Do(ctx, m, func(context.Context) error {
			switch rand.N(6) {
			case 0:
				panic(crash)
			case 1:
				_, _ = p.other.Break(context.Background(), "a")
			case 2:
				time.Sleep(rand.N(time.Millisecond)) // other calls wait meanwhile
			}
			return nil
		})
	}
	var wg sync.WaitGroup
	churn := func(rounds int) {
		for range 8 {
			wg.Go(func() {
				for range rounds {
					once()
				}
			})
		}
	}
	churn(200)
	wg.Wait()
	churn(50)
	must(t, p.Mutex("held until Close"))
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	got := p.metrics(t)
	held, waiting := got["interlock.lock.held{backend=mem mode=exclusive}"], got["interlock.lock.waiting{backend=mem mode=exclusive}"]
	acquired := got["interlock.lock.wait.duration{backend=mem mode=exclusive outcome=acquired}"]
	ended := got["interlock.lock.hold.duration{backend=mem mode=exclusive outcome=released}"] + got["interlock.lock.hold.duration{backend=mem mode=exclusive outcome=lost}"] +
		got["interlock.lock.hold.duration{backend=mem mode=exclusive outcome=error}"]
	if held != 0 || waiting != 0 || acquired != ended {
		t.Errorf("%d held, %d waiting, %d acquired, %d ended", held, waiting, acquired, ended)
	}
	if got["interlock.lock.lost{backend=mem mode=exclusive}"] == 0 || got["interlock.lock.wait.duration{backend=mem mode=exclusive outcome=timeout}"] == 0 {
		t.Errorf("the test caused no loss or no timeout: %v", got)
	}
	spans := map[string]int64{}
	for _, s := range p.spans.GetSpans() {
		spans[s.Name]++
	}
	if spans["lock.hold"] != acquired {
		t.Errorf("%d spans of holds have ended, %d leases were granted", spans["lock.hold"], acquired)
	}
}
