package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestConformanceThreeNodes(t *testing.T) {
	for _, flavour := range provision.EtcdFlavours() {
		t.Run(flavour, func(t *testing.T) { conformCluster(t, provision.EtcdCluster(t, flavour, 3)) })
	}
}

func conformCluster(t *testing.T, c *provision.EtcdNodes) {
	h := harness(t, c.Nodes[0], adminOf(t, c.Addrs()...))
	url := c.URL()
	h.Name += ", three nodes"
	h.Open = func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, url) }
	h.Worker = conformance.Self(url)
	// The service is all of its nodes. The tests below stop single nodes.
	all := func(do func(*provision.Server) error) error {
		errs := make([]error, len(c.Nodes))
		var wg sync.WaitGroup
		for i, s := range c.Nodes {
			wg.Go(func() { errs[i] = do(s) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	h.StopServer = func(context.Context) error { return all((*provision.Server).Pause) }
	h.ResumeServer = func(context.Context) error { return all((*provision.Server).Resume) }
	h.RestartServer = func(ctx context.Context) error {
		return errors.Join(all((*provision.Server).Kill), all(func(s *provision.Server) error { return s.Restart(ctx) }))
	}
	h.Failover = suite.Failover(c.Nodes, c.Leader)
	h.ServerCommands = func(ctx context.Context) (int64, error) {
		var sum int64
		for _, s := range c.Nodes {
			n, err := requests(ctx, s.Addr())
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
	conformance.Run(t, h, suite.Keep(t))
}

// relay is a holder and a queue of waiters, during a fault of the nodes.
type relay struct {
	t      *testing.T
	c      *provision.EtcdNodes
	key    string
	holder *lock.Lease
	queue  []chan int // of each waiter: closed at its end

	mu     sync.Mutex
	leases []*lock.Lease
	tokens []uint64
	served []int
}

const (
	relayTTL  = 20 * time.Second // longer than an election, also one with a split vote
	lossTTL   = 5 * time.Second  // of a holder that must lose its lock
	waiters   = 6
	timeLimit = 60 * time.Second
)

// newRelay takes the lock with a client of one node, or of all if node is negative, and
// starts waiters with clients of all nodes.
func newRelay(t *testing.T, c *provision.EtcdNodes, node int, ttl time.Duration) *relay {
	r := &relay{t: t, c: c, key: "relay/" + t.Name()}
	client := func(url string, ttl time.Duration, waits chan struct{}) *lock.Client {
		b, err := suite.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		cl, err := lock.New(b, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
			Waiting: func(context.Context, lock.Event) { waits <- struct{}{} },
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close(context.Background()) })
		return cl
	}
	waits := make(chan struct{}, waiters)
	var err error
	url := c.URL()
	if node >= 0 {
		url = "etcd://" + c.Nodes[node].Addr()
	}
	if r.holder, err = client(url, ttl, waits).Mutex(r.key).Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.enter(r.holder)
	var clients []*lock.Client
	for range 3 {
		clients = append(clients, client(c.URL(), relayTTL, waits))
	}
	for i := range waiters {
		done := make(chan int, 1)
		r.queue = append(r.queue, done)
		go r.wait(i, clients[i%len(clients)].Mutex(r.key), done)
		select {
		case <-waits:
		case <-time.After(timeLimit):
			t.Fatalf("waiter %d: did not begin to wait", i)
		}
	}
	return r
}

// enter checks that all former leases report their end.
func (r *relay) enter(l *lock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	token, _ := l.Token()
	if n := len(r.tokens); n > 0 && token <= r.tokens[n-1] {
		r.t.Errorf("tokens: %d after %v", token, r.tokens)
	}
	r.tokens = append(r.tokens, token)
	for i, former := range r.leases {
		if former.Err() == nil {
			r.t.Errorf("holder %d trusts its lease after the next grant", i)
		}
	}
	r.leases = append(r.leases, l)
}

func (r *relay) wait(i int, m lock.Mutex, done chan int) {
	defer close(done)
	l, err := m.Lock(r.t.Context())
	if err != nil {
		r.t.Errorf("waiter %d: %v", i, err)
		return
	}
	r.enter(l)
	r.mu.Lock()
	r.served = append(r.served, i)
	r.mu.Unlock()
	if err := l.Unlock(r.t.Context()); err != nil {
		r.t.Errorf("waiter %d: unlock: %v", i, err)
	}
}

// end checks that all waiters were granted in order, and that no keys are left.
func (r *relay) end() {
	for i, done := range r.queue {
		select {
		case <-done:
		case <-time.After(timeLimit):
			r.t.Fatalf("waiter %d was not granted; granted so far: %v", i, r.served)
		}
	}
	if !slices.IsSorted(r.served) || len(r.served) != waiters {
		r.t.Errorf("order of grants: %v", r.served)
	}
	admin := adminOf(r.t, r.c.Addrs()...)
	deadline := time.Now().Add(relayTTL + timeLimit)
	for {
		ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
		left, err := admin.Get(ctx, etcdlock.Folder(etcdlock.DefaultPrefix, r.key), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		cancel()
		if err == nil && len(left.Kvs) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("keys left: %v, %v", left, err)
		}
		time.Sleep(50 * time.Millisecond) // between two reads
	}
}

func TestLeaderKilled(t *testing.T) {
	for _, flavour := range provision.EtcdFlavours() {
		t.Run(flavour, func(t *testing.T) { leaderKilled(t, provision.EtcdCluster(t, flavour, 3)) })
	}
}

func leaderKilled(t *testing.T, c *provision.EtcdNodes) {
	leader, err := c.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, c, (leader+1)%3, relayTTL)
	if err := c.Nodes[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := eventually(func() error { return r.holder.Check(t.Context()) }); err != nil {
		t.Errorf("the holder, with a new leader: %v", err)
	}
	if err := r.holder.Unlock(t.Context()); err != nil {
		t.Errorf("unlock with a new leader: %v", err)
	}
	r.end()
}

func TestMinorityCutOffWithHolder(t *testing.T) {
	for _, flavour := range provision.EtcdFlavours() {
		t.Run(flavour, func(t *testing.T) { minorityCutOff(t, provision.EtcdCluster(t, flavour, 3)) })
	}
}

func minorityCutOff(t *testing.T, c *provision.EtcdNodes) {
	leader, err := c.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []int{(leader + 1) % 3, leader} {
		t.Run(fmt.Sprintf("leader=%v", node == leader), func(t *testing.T) {
			r := newRelay(t, c, node, lossTTL)
			begun := time.Now()
			c.Isolate(node)
			defer c.Rejoin()
			select {
			case <-r.holder.Done():
				t.Logf("lost after %v: %v", time.Since(begun), r.holder.Err())
			case <-time.After(timeLimit):
				t.Fatal("a holder in the minority did not lose its lock")
			}
			if err := r.holder.Unlock(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("unlock: want ErrLost, got %v", err)
			}
			r.end()
			t.Logf("all granted after %v", time.Since(begun))
		})
	}
}

func TestRollingRestart(t *testing.T) {
	for _, flavour := range provision.EtcdFlavours() {
		t.Run(flavour, func(t *testing.T) { rolling(t, provision.EtcdCluster(t, flavour, 3)) })
	}
}

func rolling(t *testing.T, c *provision.EtcdNodes) {
	r := newRelay(t, c, -1, relayTTL)
	for _, s := range c.Nodes {
		if err := errors.Join(s.Stop(), s.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		// All nodes are back before the next one stops.
		if _, err := c.Leader(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := eventually(func() error { return r.holder.Check(t.Context()) }); err != nil {
		t.Errorf("the holder, after a rolling restart: %v", err)
	}
	if err := r.holder.Unlock(t.Context()); err != nil {
		t.Errorf("unlock: %v", err)
	}
	r.end()
}

func eventually(f func() error) error { return eventuallyWithin(timeLimit, f) }

func eventuallyWithin(d time.Duration, f func() error) error {
	deadline := time.Now().Add(d)
	for {
		err := f()
		if err == nil || errors.Is(err, lock.ErrLost) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // between two tries
	}
}
