package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
	_ "github.com/interlock-go/lock/filelock"
	_ "github.com/interlock-go/lock/memlock"
)

// BenchmarkLocalWaiters measures scenario waiters of the locks without a service, once whatever
// b.N is. It reports the cycles a second with 2,000 waiters over those with 16. The peers show
// what goroutines that wait, and files that are made and removed, cost by themselves.
func BenchmarkLocalWaiters(b *testing.B) {
	dir := b.TempDir()
	for _, s := range []struct {
		name    string
		targets []measure.Target
	}{
		{"memory", []measure.Target{measure.Interlock("Interlock", "mem://local-waiters"), semaphorePeer()}},
		{"file", []measure.Target{
			measure.Interlock("Interlock", "file://"+filepath.Join(dir, "locks")), filePeer(b, filepath.Join(dir, "peer")),
		}},
	} {
		b.Run(s.name, func(b *testing.B) {
			most := 2000
			if testing.Short() {
				most = 32
			}
			var scenarios []measure.Scenario
			for _, n := range []int{16, most} {
				scen, err := measure.NewGrowth(measure.Waiters, n, *each, -1, -1)
				if err != nil {
					b.Fatal(err)
				}
				scenarios = append(scenarios, scen)
			}
			for b.Loop() {
				r := run(b, service{name: s.name}, s.targets, scenarios)
				for _, row := range r.Growth()[0].Rows {
					if row.FirstErr != "" {
						b.Fatalf("%s with %d waiters: %s", row.Target, row.N, row.FirstErr)
					}
					name := strings.ReplaceAll(row.Target, " ", "-")
					b.ReportMetric(row.Values["cycles a second"], fmt.Sprintf("cycles/s/%s/%d", name, row.N))
					if row.N != 16 {
						b.ReportMetric(row.Ratios["cycles a second"], "ratio/"+name)
					}
				}
			}
		})
	}
}

// semaphorePeer is a first come, first served queue of goroutines without leases, tokens,
// renewal and clients.
func semaphorePeer() measure.Target {
	sem := semaphore.NewWeighted(1)
	return target("x/sync semaphore", func(context.Context) (*peer, error) {
		return &peer{
			ping:  func(context.Context) error { return nil },
			close: func() error { return nil },
			lock: func(ctx context.Context, _ string) (func(context.Context) error, error) {
				if err := sem.Acquire(ctx, 1); err != nil {
					return nil, err
				}
				return func(context.Context) error { sem.Release(1); return nil }, nil
			},
		}, nil
	})
}

// filePeer makes a file for each waiter and removes it with its turn, as the driver does, but
// takes turns by a semaphore: it locks, watches and reads no file.
func filePeer(b *testing.B, dir string) measure.Target {
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	turn, entry, last := semaphore.NewWeighted(1), semaphore.NewWeighted(1), atomic.Int64{}
	create := func(ctx context.Context) (path string, err error) {
		if err := entry.Acquire(ctx, 1); err != nil {
			return "", err
		}
		defer entry.Release(1)
		temp := filepath.Join(dir, "new")
		f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, fmt.Sprintf("%020d", last.Add(1)))
		return path, errors.Join(f.Close(), os.Rename(temp, path))
	}
	return target("a file for each waiter", func(context.Context) (*peer, error) {
		return &peer{
			ping:  func(context.Context) error { return nil },
			close: func() error { return nil },
			lock: func(ctx context.Context, _ string) (func(context.Context) error, error) {
				path, err := create(ctx)
				if err != nil {
					return nil, err
				}
				if err := turn.Acquire(ctx, 1); err != nil {
					return nil, errors.Join(err, os.Remove(path))
				}
				return func(context.Context) error {
					defer turn.Release(1)
					return os.Remove(path)
				}, nil
			},
		}, nil
	})
}
