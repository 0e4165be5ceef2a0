package zookeeper_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// monitor returns the counters of a server.
func monitor(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	answer, err := provision.FourLetters(t.Context(), addr, "mntr")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for line := range strings.Lines(answer) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				m[name] = v
			}
		}
	}
	return m
}

// TestManyWaiters measures what a hand-off costs the server with few waiters and with a
// thousand.
func TestManyWaiters(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper38)
	count := newCounter(t, s.Addr())
	const few = 40 // more than those that have their watches before it is their turn
	cost := map[int]float64{}
	for _, n := range []int{few, 1000} {
		waiting := make(chan struct{}, n)
		o := lock.WithObserver(&lock.Observer{Waiting: func(context.Context, lock.Event) { waiting <- struct{}{} }})
		var clients []*lock.Client
		for range 4 {
			c, err := lock.Open(t.Context(), "zk://"+count.addr(), lock.WithTTL(time.Minute), o)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		key := fmt.Sprint("many ", n)
		size := monitor(t, s.Addr())["zk_approximate_data_size"]
		l, err := clients[0].Mutex(key).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		granted := make(chan *lock.Lease, n)
		for i := range n {
			go func() {
				if l, err := clients[i%4].Mutex(key).Lock(ctx); err == nil {
					granted <- l
				}
			}()
			<-waiting
		}
		const handOffs = 10
		before := count.snapshot()
		for range handOffs {
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = <-granted
		}
		sent := count.since(before)
		var total int64
		for op, k := range sent {
			if op != opPing {
				total += k
			}
		}
		cost[n] = float64(total) / handOffs
		m := monitor(t, s.Addr())
		watches, nodes := m["zk_watch_count"], m["zk_approximate_data_size"]-size
		t.Logf("%d waiting: %.1f requests for a hand-off (%d children, %d get, %d delete), %.0f watches, %.0f bytes of nodes",
			n, cost[n], sent[opChildren], sent[opGet], sent[opDelete], watches, nodes)
		if watches == 0 || watches > 50 { // of the first four waiters of each client, which have three, and of the holder
			t.Errorf("watches: %.0f for %d waiters", watches, n)
		}
		if nodes > float64(n+1)*200+2000 {
			t.Errorf("nodes: %.0f bytes for %d waiters", nodes, n)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		for _, c := range clients {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	if cost[1000] > cost[few]+1 {
		t.Errorf("requests for a hand-off: %.1f with 1000 waiting, %.1f with %d", cost[1000], cost[few], few)
	}
}
