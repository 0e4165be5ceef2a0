package memlock

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func BenchmarkUncontended(b *testing.B) {
	b.Run("memlock", func(b *testing.B) {
		ctx, m, req := b.Context(), New(), request("k", time.Minute)
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
	b.Run("sync.Mutex", func(b *testing.B) {
		var m sync.Mutex
		for b.Loop() {
			m.Lock()
			m.Unlock() //nolint:staticcheck // an empty critical section is what is measured
		}
	})
}

// BenchmarkHandOff: goroutines take turns at one lock.
func BenchmarkHandOff(b *testing.B) {
	for _, workers := range []int{8, 16, 2000} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) { handOff(b, workers) })
	}
}

func handOff(b *testing.B, workers int) {
	run := func(b *testing.B, cycle func(worker int)) {
		var wg sync.WaitGroup
		b.ReportAllocs()
		b.ResetTimer()
		for w := range workers {
			n := b.N / workers
			if w < b.N%workers {
				n++
			}
			wg.Go(func() {
				for range n {
					cycle(w)
				}
			})
		}
		wg.Wait()
	}
	b.Run("memlock", func(b *testing.B) {
		ctx, m := b.Context(), New()
		owners := make([]string, workers) // making ids is not measured
		for i := range owners {
			owners[i] = request("", 0).Owner
		}
		run(b, func(worker int) {
			req := backend.Request{Key: "k", Owner: owners[worker], TTL: time.Minute}
			g, err := m.Acquire(ctx, req)
			if err != nil {
				b.Error(err)
				return
			}
			if err := g.Release(ctx); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("sync.Mutex", func(b *testing.B) {
		var m sync.Mutex
		run(b, func(int) {
			m.Lock()
			m.Unlock() //nolint:staticcheck // an empty critical section is what is measured
		})
	})
}
