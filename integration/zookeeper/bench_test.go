package zookeeper_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/zklock"
)

// BenchmarkCycles shows that a cycle costs the same however many wait: -benchtime=2000x.
func BenchmarkCycles(b *testing.B) {
	s := provision.NewZooKeeper(b, provision.ZooKeeper39)
	count := newCounter(b, s.Addr())
	for _, waiters := range []int{16, 500, 2000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			suite.Cycles(b, "zk://"+count.addr(), fmt.Sprint("cycles-", waiters, "-", b.N), 4, waiters,
				func() (int64, error) { return count.total(), nil })
		})
	}
}

// BenchmarkNames uses b.N names once, with a retention of a minute, and counts the nodes that
// are left two minutes later: -benchtime=20000x.
func BenchmarkNames(b *testing.B) {
	s := provision.NewZooKeeper(b, provision.ZooKeeper39)
	c, err := lock.Open(b.Context(), "zk://"+s.Addr()+"?retention=1m", lock.WithTTL(30*time.Second))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(b.Context())
	names := make(chan string)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for name := range names {
				l, err := c.Mutex(name).TryLock(b.Context())
				if err == nil {
					err = l.Unlock(b.Context())
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range b.N {
		names <- fmt.Sprint("once-", b.N, "-", i)
	}
	close(names)
	wg.Wait()
	b.StopTimer()
	if b.N > 1 { // the first run is to find out whether it works
		time.Sleep(2 * time.Minute)
	}
	left, _, err := admin(b, []string{s.Addr()}).Children("/" + zklock.DefaultPrefix)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(100*float64(len(left))/float64(b.N), "%-left")
}
