package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/zklock"
)

// connect returns a connection of the caller, which the end of the test closes.
func connect(t *testing.T, addr string, timeout time.Duration) *zk.Conn {
	conn, events, err := zk.Connect([]string{addr}, timeout, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	return conn
}

func ownConnection(t *testing.T, addr string, _ *zk.Conn) {
	const session, ttl = 12 * time.Second, 8 * time.Second
	conn := connect(t, addr, session)
	b := must[*zklock.Backend](t)(zklock.New(t.Context(), conn, session, zklock.WithPrefix("own")))
	if _, err := lock.New(b); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "at most 12s") && !strings.Contains(err.Error(), "to 12s") {
		t.Errorf("the default TTL on a session of %v: got %v", session, err)
	}
	c := must[*lock.Client](t)(lock.New(b, lock.WithTTL(ttl)))
	var leases []*lock.Lease
	for i := range 20 {
		l := must[*lock.Lease](t)(c.Mutex(fmt.Sprint("own ", i)).Lock(t.Context()))
		if left := time.Until(l.Expires()); left < ttl/2 || left > ttl {
			t.Errorf("lease %d lasts %v", i, left)
		}
		leases = append(leases, l)
	}
	got := make(chan error, 1)
	waits := make(chan struct{})
	w := must[*lock.Client](t)(lock.New(must[*zklock.Backend](t)(zklock.New(t.Context(), connect(t, addr, session), session, zklock.WithPrefix("own"))),
		lock.WithTTL(9*time.Second), lock.WithObserver(&lock.Observer{Waiting: func(context.Context, lock.Event) { close(waits) }})))
	go func() {
		l, err := w.Mutex("own 0").Lock(t.Context())
		if err == nil {
			err = errors.Join(l.Check(t.Context()), l.Unlock(t.Context()))
		}
		got <- err
	}()
	<-waits
	for _, l := range leases {
		if err := errors.Join(l.Check(t.Context()), l.Unlock(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if err := <-got; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	if err := errors.Join(c.Close(t.Context()), w.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if _, _, err := conn.Exists("/"); err != nil {
		t.Errorf("the caller's connection after Close: %v", err)
	}
}

func ownSessionExpires(t *testing.T, count *counter) {
	conn := connect(t, count.addr(), 4*time.Second)
	b := must[*zklock.Backend](t)(zklock.New(t.Context(), conn, 4*time.Second))
	c := must[*lock.Client](t)(lock.New(b, lock.WithTTL(4*time.Second)))
	defer c.Close(context.Background())
	l := must[*lock.Lease](t)(c.Mutex("expires").Lock(t.Context()))
	first, _ := l.Token()
	count.mu.Lock()
	password := count.passwords[conn.SessionID()]
	count.mu.Unlock()
	if err := closeSession(t.Context(), count.upstream, conn.SessionID(), password); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Done():
	case <-time.After(8 * time.Second):
		t.Fatal("the lease goes on after its session has ended")
	}
	if !errors.Is(l.Err(), lock.ErrLost) {
		t.Errorf("got %v", l.Err())
	}
	var again *lock.Lease
	eventually(t, 10*time.Second, "the lock in the next session", func() (err error) {
		again, err = c.Mutex("expires").TryLock(t.Context())
		return err
	})
	if token, _ := again.Token(); token <= first {
		t.Errorf("token %d after %d", token, first)
	}
	if err := again.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
