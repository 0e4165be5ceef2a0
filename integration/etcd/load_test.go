package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// TestManyLeases holds many leases with one client for a minute. Each must be kept.
func TestManyLeases(t *testing.T) {
	provision.LeaveOut(t, "20,000 leases of one client")
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{})
	keepAll(t, s.URL(), 20_000, 10*time.Second, time.Minute)
}

// TestGRPCProxy holds leases with a short TTL through a proxy, which sends keep-alives at its own pace.
func TestGRPCProxy(t *testing.T) {
	provision.LeaveOut(t, "etcd's gRPC proxy")
	p := provision.NewEtcdProxy(t, provision.NewEtcd(t, provision.AnyEtcd, provision.Options{}))
	keepAll(t, p.URL(), 4, 2*time.Second, 10*time.Second)
}

// keepAll holds n leases with one client, of that TTL or the least that the driver permits, and fails if one is lost.
func keepAll(t *testing.T, url string, n int, ttl, hold time.Duration) {
	t.Helper()
	b, err := suite.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ttl = max(ttl, b.Capabilities().MinTTL)
	c, err := lock.New(b, lock.WithTTL(ttl), lock.WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Close(ctx)
	})
	leases := make([]*lock.Lease, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, 64) {
		workers.Go(func() {
			for i := range next {
				l, err := c.Mutex(fmt.Sprintf("held-%d", i)).TryLock(t.Context())
				if err != nil {
					t.Errorf("TryLock of a free key: want a grant, got %v", err)
				}
				leases[i] = l
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	if t.Failed() {
		return
	}
	time.Sleep(hold) // for which the leases are observed
	lost := 0
	for _, l := range leases {
		if err := l.Err(); err != nil {
			if lost++; lost == 1 {
				t.Errorf("the first lost lease of TTL %v: %v", ttl, err)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d leases of TTL %v were lost", lost, n, ttl)
	}
}
