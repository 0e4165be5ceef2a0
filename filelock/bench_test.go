//go:build unix

package filelock

import (
	"fmt"
	"sync"
	"testing"
)

func BenchmarkUncontended(b *testing.B) {
	l := open1(b, b.TempDir())
	for b.Loop() {
		release(b, try(b, l, "k"))
	}
}

// BenchmarkHandOff: as many Backends as waiters, as if each were a process.
func BenchmarkHandOff(b *testing.B) {
	for _, workers := range []int{2, 16, 64} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
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
						g, err := l.Acquire(b.Context(), request("k"))
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
		})
	}
}
