//go:build unix

package filelock

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

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

// BenchmarkOwnLocks: 64 workers of one process, each with its own lock.
func BenchmarkOwnLocks(b *testing.B) {
	l := open1(b, b.TempDir())
	cycles(b, 64, 0, func(worker int) (*Backend, backend.Request) { return l, request(fmt.Sprint("k", worker)) })
}

// BenchmarkPermits: 64 workers take turns at 8 permits.
func BenchmarkPermits(b *testing.B) { handOff(b, 64, 64, permits(1, 8)) }

// BenchmarkHandOff: workers take turns at a lock, and hold it so long that the others are in the queue. A Backend is as
// another process.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range [][2]int{{2, 2}, {16, 16}, {64, 64}, {16, 4}, {2000, 4}} {
		b.Run(fmt.Sprintf("workers=%d/backends=%d", n[0], n[1]), func(b *testing.B) { handOff(b, n[0], n[1], backend.Share{}) })
	}
}

func handOff(b *testing.B, workers, backends int, s backend.Share) {
	dir := b.TempDir()
	ls := make([]*Backend, backends)
	for i := range ls {
		ls[i] = open1(b, dir)
	}
	cycles(b, workers, 500*time.Microsecond, func(worker int) (*Backend, backend.Request) {
		req := request("k")
		req.Share = s
		return ls[worker%backends], req
	})
}

// cycles has workers acquire and release, and reports the processor time of a cycle too.
func cycles(b *testing.B, workers int, hold time.Duration, next func(worker int) (*Backend, backend.Request)) {
	var wg sync.WaitGroup
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.ResetTimer()
	for w := range workers {
		n := b.N / workers
		if w < b.N%workers {
			n++
		}
		wg.Go(func() {
			for range n {
				l, req := next(w)
				g, err := l.Acquire(b.Context(), req)
				if err == nil {
					if hold > 0 {
						time.Sleep(hold) // the work
					}
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
	b.StopTimer()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
}
