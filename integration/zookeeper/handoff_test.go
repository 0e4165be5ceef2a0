package zookeeper_test

import (
	"context"
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

// waitingClient returns a client that tells when one of its calls begins to wait.
func waitingClient(t *testing.T, url string, ttl time.Duration) (*lock.Client, <-chan struct{}) {
	t.Helper()
	waits := make(chan struct{}, 1000)
	c, err := lock.Open(t.Context(), url, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
		Waiting: func(context.Context, lock.Event) { waits <- struct{}{} },
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c, waits
}

type granted struct {
	who string
	l   *lock.Lease
	err error
}

// TestHandOffInOneRoundTrip is the benchmark's hand-off with a bound that leaves room
// for a busy machine and none for another round trip.
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

// TestPlacesThatVanish deletes places of waiters, alone and in one step with that of
// the holder, so that the two events arrive together: who has lost its place queues
// again at the end, and is never granted with it.
func TestPlacesThatVanish(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper38)
	conn := admin(t, []string{s.Addr()})
	for _, gone := range [][]int{{1}, {2}, {1, 2}, {1, 0}, {2, 0}, {2, 1, 0}, {3, 1, 0}, {3, 2, 1}} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			dog := &watchdog{t: t}
			key := fmt.Sprint("vanish ", gone)
			names := []string{"holder", "a", "b", "c", "d"}
			all := make(chan granted, len(names))
			var nodes []string
			var holder uint64
			for i, who := range names {
				c, waits := waitingClient(t, "zk://"+s.Addr(), 10*time.Second)
				go func() {
					l, err := c.Mutex(key).Lock(t.Context())
					if err == nil {
						dog.enter(who, l)
					}
					all <- granted{who, l, err}
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
			var order, want []string
			for i, who := range names[1:] {
				if !slices.Contains(gone, i+1) {
					want = append(want, who)
				}
			}
			dog.leave(names[0], holder) // it is about to be told
			must[[]zk.MultiResponse](t)(conn.Multi(ops...))
			for range names[1:] {
				var g granted
				select {
				case g = <-all:
				case <-time.After(20 * time.Second):
					t.Fatalf("nobody is granted any more after %q", order)
				}
				if g.err != nil {
					t.Fatalf("%s: %v", g.who, g.err)
				}
				order = append(order, g.who)
				if err := g.l.Check(t.Context()); err != nil {
					t.Errorf("%s was granted what it does not hold: %v", g.who, err)
				}
				token, _ := g.l.Token()
				dog.leave(g.who, token)
				if err := g.l.Unlock(t.Context()); err != nil {
					t.Errorf("%s: %v", g.who, err)
				}
			}
			if got := order[:len(want)]; !slices.Equal(got, want) {
				t.Errorf("order of service: %q, want %q first", order, want)
			}
			nothingLeft(t, []string{s.Addr()}, key)
		})
	}
}

// child returns the path of an owner's node.
func child(t *testing.T, conn *zk.Conn, key, owner string) string {
	t.Helper()
	nodes, _, err := conn.Children(node(key))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n[:len(owner)] == owner {
			return node(key) + "/" + n
		}
	}
	t.Fatalf("no node of %s among %q", owner, nodes)
	return ""
}

// TestAges compares the ages of a holder and of one who waits with what has passed
// here: the server's clock is this machine's.
func TestAges(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper38)
	begun := time.Now()
	c, waits := waitingClient(t, "zk://"+s.Addr(), 10*time.Second)
	l := must[*lock.Lease](t)(c.Mutex("age").Lock(t.Context()))
	held := time.Now()
	got := make(chan granted, 1)
	go func() {
		l, err := c.Mutex("age").Lock(t.Context())
		got <- granted{"", l, err}
	}()
	<-waits
	waited := time.Now()
	const tick = 2 * time.Millisecond // the service counts whole milliseconds
	for range 3 {
		leastHeld, leastWaited := time.Since(held)-tick, time.Since(waited)-tick
		asked := time.Now()
		info := must[backend.Info](t)(c.Inspect(t.Context(), "age"))
		took := time.Since(asked) + tick // an age is counted from when it was asked for
		if a, most := info.Holder.Age, time.Since(begun)+took; a < leastHeld || a > most {
			t.Errorf("the holder: %v, want %v to %v", a, leastHeld, most)
		}
		if a, most := info.Waiters[0].Age, time.Since(held)+took; a < leastWaited || a > most {
			t.Errorf("the one who waits: %v, want %v to %v", a, leastWaited, most)
		}
		listed := 0
		for i, err := range c.List(t.Context()) {
			if listed++; err != nil || i.Holder.Age < leastHeld {
				t.Errorf("listed: %+v, %v, want %v and more", i, err, leastHeld)
			}
		}
		if listed != 1 {
			t.Errorf("%d locks are listed", listed)
		}
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	next := <-got
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := next.l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
