package zookeeper_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
)

type granted struct {
	client string
	l      *lock.Lease
	err    error
}

// TestHandOffInOneRoundTrip measures hand-offs over a slow link. The bound allows for a busy
// machine, but not for a second round trip.
func TestHandOffInOneRoundTrip(t *testing.T) {
	const oneWay, handOffs = 100 * time.Millisecond, 16
	s := provision.NewZooKeeper(t, provision.ZooKeeper38)
	p := provision.NewProxy(t, s.Addr())
	var clients []*lock.Client
	var waits []<-chan struct{}
	for range 2 {
		c, w := waitingClient(t, "zk://"+p.Addr(), time.Minute)
		makeNode(t, c, "relay")
		clients, waits = append(clients, c), append(waits, w)
	}
	l := must[*lock.Lease](t)(clients[0].Mutex("relay").Lock(t.Context()))
	all := make(chan granted, handOffs)
	for i := range handOffs {
		go func() {
			l, err := clients[i%2].Mutex("relay").Lock(t.Context())
			all <- granted{"", l, err}
		}()
		<-waits[i%2]
	}
	p.Delay(oneWay)
	defer p.Delay(0)
	var gaps []time.Duration
	for range handOffs {
		released := make(chan error, 1)
		begun := time.Now()
		go func() { released <- l.Unlock(t.Context()) }()
		next := <-all
		gaps = append(gaps, time.Since(begun))
		if err := errors.Join(next.err, <-released); err != nil {
			t.Fatal(err)
		}
		l = next.l
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	slices.Sort(gaps)
	rtts := func(d time.Duration) float64 { return float64(d) / float64(2*oneWay) }
	t.Logf("hand-off: %.2f round trips, at most %.2f", rtts(gaps[handOffs/2]), rtts(gaps[handOffs-1]))
	if p50 := rtts(gaps[handOffs/2]); p50 > 1.75 {
		t.Errorf("half of the hand-offs took more than %.2f round trips", p50)
	}
}

// TestVanishedNodes deletes nodes of waiters, alone and in one transaction with that of
// the holder, so that the events arrive together: a waiter whose node was deleted queues
// again at the end, and is never granted by that node.
func TestVanishedNodes(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper38)
	for _, gone := range [][]int{{1}, {2}, {1, 2}, {1, 0}, {2, 0}, {2, 1, 0}, {3, 1, 0}, {3, 2, 1}} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) { testVanishedNodes(t, s.Addr(), gone) })
	}
}

// testVanishedNodes deletes the nodes with these indices in the queue, and that of the holder.
func testVanishedNodes(t *testing.T, addr string, gone []int) {
	conn, check := admin(t, []string{addr}), &exclusionCheck{t: t}
	key := fmt.Sprint("vanish ", gone)
	names := []string{"holder", "a", "b", "c", "d"}
	all := make(chan granted, len(names))
	var nodes []string
	var holder uint64
	for i, name := range names {
		c, waits := waitingClient(t, "zk://"+addr, 10*time.Second)
		go func() {
			l, err := c.Mutex(key).Lock(t.Context())
			if err == nil {
				check.enter(name, l)
			}
			all <- granted{name, l, err}
		}()
		if i > 0 {
			<-waits
		} else if first := <-all; first.err != nil {
			t.Fatal(first.err)
		} else {
			holder, _ = first.l.Token()
		}
		info := must[backend.Info](t)(c.Inspect(t.Context(), key))
		owner := info.Holder.Owner
		if i > 0 {
			owner = info.Waiters[i-1].Owner
		}
		nodes = append(nodes, child(t, conn, key, owner))
	}
	var ops []any
	for _, i := range gone {
		ops = append(ops, &zk.DeleteRequest{Path: nodes[i], Version: -1})
	}
	if !slices.Contains(gone, 0) {
		ops = append(ops, &zk.DeleteRequest{Path: nodes[0], Version: -1})
	}
	var want []string
	for i, name := range names[1:] {
		if !slices.Contains(gone, i+1) {
			want = append(want, name)
		}
	}
	check.leave(names[0], holder) // OnLost comes later
	must[[]zk.MultiResponse](t)(conn.Multi(ops...))
	order := unlockAll(t, check, all, len(names)-1)
	if got := order[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("order of service: %q, want %q first", order, want)
	}
	nothingLeft(t, []string{addr}, key)
}

// unlockAll checks and releases the next n grants. It returns the clients in their order.
func unlockAll(t *testing.T, check *exclusionCheck, all <-chan granted, n int) (order []string) {
	t.Helper()
	for range n {
		var g granted
		select {
		case g = <-all:
		case <-time.After(20 * time.Second):
			t.Fatalf("no grant after %q", order)
		}
		if g.err != nil {
			t.Fatalf("%s: %v", g.client, g.err)
		}
		order = append(order, g.client)
		if err := g.l.Check(t.Context()); err != nil {
			t.Errorf("%s does not hold what it was granted: %v", g.client, err)
		}
		token, _ := g.l.Token()
		check.leave(g.client, token)
		if err := g.l.Unlock(t.Context()); err != nil {
			t.Errorf("%s: %v", g.client, err)
		}
	}
	return order
}
