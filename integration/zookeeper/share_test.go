package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// lockInBackground returns the result of a call, when the call waits or has returned.
func lockInBackground(t *testing.T, waits <-chan struct{}, m lock.Mutex) <-chan granted {
	t.Helper()
	all := make(chan granted, 1)
	done := make(chan struct{})
	go func() {
		l, err := m.Lock(t.Context())
		all <- granted{"", l, err}
		close(done)
	}()
	select {
	case <-waits:
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the call neither waits nor returns")
	}
	return all
}

// receive returns the lease of a call within some seconds.
func receive(t *testing.T, what string, ch <-chan granted) *lock.Lease {
	t.Helper()
	select {
	case g := <-ch:
		if g.err != nil {
			t.Fatalf("%s: %v", what, g.err)
		}
		return g.l
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: no grant", what)
		return nil
	}
}

// settle waits until no more requests are sent.
func settle(t *testing.T, count *counter) {
	t.Helper()
	last, since := count.total(), time.Now()
	eventually(t, 20*time.Second, "the end of the requests", func() error {
		if now := count.total(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 300*time.Millisecond {
			return errors.New("there are requests")
		}
		return nil
	})
}

// TestSharesAdmittedTogether measures over a slow link how long after one release many readers,
// and many permits, of two clients are granted, and counts the requests.
func TestSharesAdmittedTogether(t *testing.T) {
	const oneWay, n = 250 * time.Millisecond, 64 // a busy machine adds less than a round trip
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	count := newCounter(t, s.Addr())
	p := provision.NewProxy(t, count.addr())
	var clients []*lock.Client
	var waits []<-chan struct{}
	for range 2 {
		c, w := waitingClient(t, "zk://"+p.Addr(), time.Minute)
		clients, waits = append(clients, c), append(waits, w)
	}
	for _, permits := range []int{0, 8} {
		key := fmt.Sprint("together ", permits)
		writer := must[*lock.Lease](t)(clients[0].Mutex(key).Lock(t.Context()))
		var got []<-chan granted
		for i := range n {
			m := clients[i%2].RWMutex(key).RLocker()
			if permits > 0 {
				m = clients[i%2].Semaphore(key, permits).Weighted(1)
			}
			got = append(got, lockInBackground(t, waits[i%2], m))
		}
		settle(t, count) // they set their watches
		p.Delay(oneWay)
		before, begun := count.total(), time.Now()
		if err := writer.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		admitted, bound := n, 2.75 // the event, and a listing that shows the others of a process that they hold too
		if permits > 0 {
			admitted, bound = permits, 10 // the event, the queue, the slots; again, the nodes, for those that were not known
		}
		slots := map[int]bool{}
		var leases []*lock.Lease
		for i := range admitted {
			l := receive(t, fmt.Sprint("share ", i), got[i])
			leases = append(leases, l)
			for _, s := range l.Slots() {
				slots[s] = true
			}
		}
		rtts := float64(time.Since(begun)) / float64(2*oneWay)
		p.Delay(0)
		t.Logf("permits %d: %d of %d waiters were granted %.2f round trips after the release, with %d requests", permits, admitted, n, rtts, count.total()-before)
		if rtts > bound {
			t.Errorf("permits %d: want at most %.2f round trips, got %.2f", permits, bound, rtts)
		}
		if len(slots) != permits {
			t.Errorf("slots of %d permits: got %v", permits, slots)
		}
		for _, l := range leases {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for i := admitted; i < n; i++ {
			if err := receive(t, "a waiter", got[i]).Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		nothingLeft(t, []string{s.Addr()}, key)
	}
}

// TestSemaphoreCycles counts the requests of a cycle with few and with many waiters.
func TestSemaphoreCycles(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	count := newCounter(t, s.Addr())
	cost := map[int]float64{}
	for _, workers := range []int{32, 256} {
		const cycles, permits = 1000, 8
		key := fmt.Sprint("cycles ", workers)
		var clients []*lock.Client
		for range 4 {
			clients = append(clients, client(t, "zk://"+count.addr(), time.Minute))
		}
		var left atomic.Int64
		left.Store(cycles)
		var wg sync.WaitGroup
		before := count.total()
		for i := range workers {
			wg.Go(func() {
				sem := clients[i%4].Semaphore(key, permits)
				for left.Add(-1) >= 0 {
					l, err := sem.Acquire(t.Context(), 1)
					if err == nil {
						err = l.Unlock(t.Context())
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		cost[workers] = float64(count.total()-before) / cycles
		t.Logf("%d workers: %.1f requests for a cycle", workers, cost[workers])
	}
	if cost[32] > 20 || cost[256] > 25 {
		t.Errorf("requests for a cycle: %v", cost)
	}
}

// TestSlotsNotAnswered loses the reply to the request that assigns slots: the attempt finds them,
// and another one has others.
func TestSlotsNotAnswered(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	for i, how := range []string{"TryAcquire", "Acquire", "Acquire that waits", "lost with the request"} {
		key := fmt.Sprint("slots ", i)
		p := provision.NewProxy(t, s.Addr())
		c, waits := waitingClient(t, "zk://"+p.Addr(), 5*time.Second)
		other := client(t, "zk://"+s.Addr(), 5*time.Second)
		first := must[*lock.Lease](t)(other.Semaphore(key, 4).Acquire(t.Context(), 1))
		trap := p.DropReply
		if i == 3 {
			trap = p.DropRequest
		}
		var hold *lock.Lease
		if i >= 2 {
			hold = must[*lock.Lease](t)(other.Semaphore(key, 4).Acquire(t.Context(), 3))
		}
		dropped := trap(func(chunk []byte) bool { return sends(chunk, opMulti, "2/4 1-2") })
		var l *lock.Lease
		switch {
		case i == 0:
			l = must[*lock.Lease](t)(c.Semaphore(key, 4).TryAcquire(t.Context(), 2))
		case hold == nil:
			l = must[*lock.Lease](t)(c.Semaphore(key, 4).Acquire(t.Context(), 2))
		default:
			got := lockInBackground(t, waits, c.Semaphore(key, 4).Weighted(2))
			if err := hold.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = receive(t, how, got)
		}
		select {
		case <-dropped:
		default:
			t.Fatalf("%s: no reply was lost", how)
		}
		next := must[*lock.Lease](t)(other.Semaphore(key, 4).TryAcquire(t.Context(), 1))
		if got := fmt.Sprint(first.Slots(), l.Slots(), next.Slots()); got != "[0] [1 2] [3]" {
			t.Errorf("%s: slots %s", how, got)
		}
		for _, l := range []*lock.Lease{first, l, next} {
			if err := errors.Join(l.Check(t.Context()), l.Unlock(t.Context())); err != nil {
				t.Errorf("%s: %v", how, err)
			}
		}
		nothingLeft(t, []string{s.Addr()}, key)
	}
}

// TestSlotsAfterStop silences the link of the waiter that the others wait for: they are granted
// when its session has ended.
func TestSlotsAfterStop(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	const key, ttl = "stopped", 2 * time.Second
	p := provision.NewProxy(t, s.Addr())
	stopped, waits := waitingClient(t, "zk://"+p.Addr(), ttl)
	c, others := waitingClient(t, "zk://"+s.Addr(), 10*time.Second)
	w := must[*lock.Lease](t)(c.Mutex(key).Lock(t.Context()))
	lockInBackground(t, waits, stopped.Semaphore(key, 3).Weighted(1))
	two := lockInBackground(t, others, c.Semaphore(key, 3).Weighted(2))
	one := lockInBackground(t, others, c.Semaphore(key, 3).Weighted(1))
	p.Stall()
	defer p.Link.Heal()
	if err := w.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	l2, l1 := receive(t, "two permits", two), receive(t, "one permit", one)
	if d := time.Since(begun); d > 2*ttl {
		t.Errorf("granted %v after the release", d)
	}
	all := append(l2.Slots(), l1.Slots()...)
	if slices.Sort(all); len(slices.Compact(all)) != 3 {
		t.Errorf("slots %v and %v", l2.Slots(), l1.Slots())
	}
	for _, l := range []*lock.Lease{l1, l2} {
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestDowngradeNotAnswered loses the reply to a downgrade, and the request: it is done when
// Downgrade returns nil. A client that watches the lock is notified.
func TestDowngradeNotAnswered(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	other := client(t, "zk://"+s.Addr(), 5*time.Second)
	for i, name := range []string{"reply", "request"} {
		p := provision.NewProxy(t, s.Addr())
		c := client(t, "zk://"+p.Addr(), 5*time.Second)
		l := must[*lock.Lease](t)(c.RWMutex(name).Lock(t.Context()))
		b := must[backend.Backend](t)(suite.Open(t.Context(), "zk://"+s.Addr()))
		defer b.Close(context.Background())
		changes := make(chan struct{}, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = b.(backend.ChangeWatcher).WatchChanges(ctx, name, func() { changes <- struct{}{} })
		}()
		<-changes
		trap := []func(func([]byte) bool) <-chan struct{}{p.DropReply, p.DropRequest}[i]
		dropped := trap(func(chunk []byte) bool { return sends(chunk, opMulti, "\x00read") })
		if err := l.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-dropped:
		default:
			t.Fatal("nothing was lost")
		}
		select {
		case <-changes:
		case <-time.After(5 * time.Second):
			t.Error("a client that watches is not notified of a downgrade")
		}
		info := must[backend.Info](t)(other.Inspect(t.Context(), name))
		if info.Holder == nil || info.Holder.Share != backend.Reader || info.Holder.Metadata == "" {
			t.Errorf("Inspect: %+v", info)
		}
		r := must[*lock.Lease](t)(other.RWMutex(name).TryRLock(t.Context()))
		if _, err := other.Mutex(name).TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("a writer beside readers: %v", err)
		}
		if err := errors.Join(l.Check(t.Context()), l.Unlock(t.Context()), r.Unlock(t.Context())); err != nil {
			t.Error(err)
		}
	}
}
