package nats_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

const clusterTTL = 20 * time.Second // longer than an election

// waiting starts a waiter at a node, and returns when its process has subscribed.
func waiting(t *testing.T, c *provision.NATSNodes, node int, name string) <-chan time.Time {
	t.Helper()
	waits := make(chan struct{}, 1)
	m := client(t, "nats://"+c.Nodes[node].Addr()+"?timeout=1s", lock.WithTTL(clusterTTL), lock.WithObserver(&lock.Observer{
		Waiting: func(context.Context, lock.Event) { waits <- struct{}{} },
	})).Mutex(name)
	granted := make(chan time.Time, 1)
	go func() {
		l, err := m.Lock(t.Context())
		if err != nil {
			t.Errorf("the waiter at node %d: %v", node, err)
			return
		}
		granted <- time.Now()
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("the waiter at node %d: %v", node, err)
		}
	}()
	<-waits
	time.Sleep(time.Second) // the second read after the subscription: then only notifications wake it for 5 s
	return granted
}

func within(t *testing.T, granted <-chan time.Time, limit time.Duration, what string) {
	t.Helper()
	select {
	case <-granted:
	case <-time.After(limit):
		t.Errorf("%s: the waiter has not got the lock after %v", what, limit)
	}
}

const promptly = 3 * time.Second // less than the interval at which waiters read

// A release wakes waiters at each node, whichever of them leads the stream.
func TestWaitersAtEachNode(t *testing.T) {
	c := provision.NATSCluster(t, provision.NATS2, 3, provision.Options{})
	holder := client(t, c.URL(), lock.WithTTL(clusterTTL))
	for node := range c.Nodes {
		l, err := holder.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		granted := waiting(t, c, node, "x")
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		within(t, granted, promptly, "released")
	}
}

// A waiter reads the lock after an election: the new leader does not republish what it stored as a follower. Here a
// release is not republished at all.
func TestWaiterAfterElection(t *testing.T) {
	c := provision.NATSCluster(t, provision.NATS2, 3, provision.Options{})
	l, err := client(t, c.URL(), lock.WithTTL(clusterTTL)).Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	granted := waiting(t, c, 0, "x")
	js := streams(t, c.Nodes[0])
	stream, err := js.Stream(t.Context(), "KV_locks")
	if err != nil {
		t.Fatal(err)
	}
	silent := stream.CachedInfo().Config
	silent.RePublish = nil
	if _, err := js.UpdateStream(t.Context(), silent); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-granted:
		t.Fatal("the waiter was woken without a notification")
	case <-time.After(500 * time.Millisecond):
	}
	if _, err := js.Conn().Request(jetstream.DefaultAPIPrefix+"STREAM.LEADER.STEPDOWN.KV_locks", nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	within(t, granted, promptly, "elected")
}

// A holder keeps its lock while the leader of the stream is killed or frozen, a waiter gets it after that, and the
// node comes back.
func TestLeaderFails(t *testing.T) {
	c := provision.NATSCluster(t, provision.NATS2, 3, provision.Options{})
	holder := client(t, c.URL()+"&timeout=1s", lock.WithTTL(clusterTTL))
	last := uint64(0)
	for what, fault := range map[string]struct{ begin, end func(*provision.Server) error }{
		"killed": {(*provision.Server).Kill, func(s *provision.Server) error { return s.Restart(t.Context()) }},
		"frozen": {(*provision.Server).Pause, (*provision.Server).Resume},
	} {
		l, err := holder.Mutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token, _ := l.Token()
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last = token
		leader, err := c.Leader(t.Context(), "locks")
		if err != nil {
			t.Fatal(err)
		}
		granted := waiting(t, c, (leader+1)%3, "x")
		if err := fault.begin(c.Nodes[leader]); err != nil {
			t.Fatal(err)
		}
		for err = l.Check(t.Context()); err != nil && l.Err() == nil; err = l.Check(t.Context()) {
			t.Logf("%s: %v", what, err)
		}
		if err != nil {
			t.Errorf("%s: the holder: %v", what, err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("%s: unlock: %v", what, err)
		}
		within(t, granted, 15*time.Second, what)
		if err := fault.end(c.Nodes[leader]); err != nil {
			t.Fatal(err)
		}
	}
}
