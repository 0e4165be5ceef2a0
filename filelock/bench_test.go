//go:build unix

package filelock

import (
	"fmt"
	"sync"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func BenchmarkUncontended(b *testing.B) {
	for _, s := range []backend.Share{{}, backend.Reader, permits(1, 8)} {
		b.Run(s.Mode(), func(b *testing.B) {
			l := open1(b, b.TempDir())
			for b.Loop() {
				release(b, tryShare(b, l, "k", s))
			}
		})
	}
}

// BenchmarkBesideHolders: a share of a lock that 63 others hold.
func BenchmarkBesideHolders(b *testing.B) {
	for _, s := range []backend.Share{backend.Reader, permits(1, 64)} {
		b.Run(s.Mode(), func(b *testing.B) {
			l := open1(b, b.TempDir())
			for range 63 {
				tryShare(b, l, "k", s)
			}
			for b.Loop() {
				release(b, tryShare(b, l, "k", s))
			}
		})
	}
}

// BenchmarkPermits: 64 workers take turns at 8 permits.
func BenchmarkPermits(b *testing.B) {
	handOff(b, 64, permits(1, 8))
}

// BenchmarkHandOff: as many Backends as waiters, as if each were a process.
func BenchmarkHandOff(b *testing.B) {
	for _, workers := range []int{2, 16, 64} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) { handOff(b, workers, backend.Share{}) })
	}
}

func handOff(b *testing.B, workers int, s backend.Share) {
	dir := b.TempDir()
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range workers {
		l := open1(b, dir)
		n := b.N / workers
		if w < b.N%workers {
			n++
		}
		wg.Go(func() {
			for range n {
				req := request("k")
				req.Share = s
				g, err := l.Acquire(b.Context(), req)
				if err == nil {
					err = g.Release(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
