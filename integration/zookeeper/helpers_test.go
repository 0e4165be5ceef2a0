package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
)

// must returns a function that fails the test if err is not nil.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// makeNode uses a name once, so that its node exists.
func makeNode(t *testing.T, c *lock.Client, name string) {
	t.Helper()
	l, err := c.Mutex(name).TryLock(t.Context())
	if err == nil {
		err = l.Unlock(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// client returns a client that the end of the test closes.
func client(t *testing.T, url string, ttl time.Duration, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url, append(opts, lock.WithTTL(ttl))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// waitingClient returns a client, and a channel that receives when one of its calls begins to wait.
func waitingClient(t *testing.T, url string, ttl time.Duration) (*lock.Client, <-chan struct{}) {
	t.Helper()
	waits := make(chan struct{}, 1000)
	return client(t, url, ttl, lock.WithObserver(&lock.Observer{
		Waiting: func(context.Context, lock.Event) { waits <- struct{}{} },
	})), waits
}

// eventually waits until cond returns nil, for d at most.
func eventually(t *testing.T, d time.Duration, what string, cond func() error) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, d, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// nothingLeft checks that no client has a node of the key.
func nothingLeft(t *testing.T, addrs []string, key string) {
	t.Helper()
	conn := admin(t, addrs)
	eventually(t, 15*time.Second, "nodes of "+key, func() error {
		if _, err := conn.Sync("/"); err != nil {
			return err
		}
		nodes, _, err := conn.Children(node(key))
		switch {
		case errors.Is(err, zk.ErrNoNode): // the server has deleted the container
			err = nil
		case len(nodes) > 0:
			err = fmt.Errorf("left: %q", nodes)
		}
		return err
	})
}

// child returns the path of the node of an owner id.
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
