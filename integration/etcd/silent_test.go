package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// What the driver waits for: until a request without an answer makes a connection suspect, and for a ping of gRPC.
const (
	leastSilence     = 100 * time.Millisecond
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// TestSilentConnection makes the connection of a client silent.
func TestSilentConnection(t *testing.T) {
	link := provision.NewProxy(t, provision.NewEtcd(t, provision.AnyEtcd, provision.Options{}).Addr())
	b, err := suite.Open(t.Context(), "etcd://"+link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	ping := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return b.(backend.Pinger).Ping(ctx)
	}
	link.SilenceOpen()
	if err := ping(leastSilence / 2); err == nil {
		t.Fatal("a request on a silent connection: want an error")
	}
	if err := ping(4 * leastSilence); err == nil {
		t.Error("after a request that ended at once: want the same connection, got an answer")
	}
	if err := ping(keepAliveTimeout - time.Second); err != nil {
		t.Errorf("after a request without an answer: want another connection, got %v", err)
	}
	link.SilenceOpen()
	if err := ping(2 * keepAliveTimeout); err != nil {
		t.Errorf("a request with a late deadline: want an answer over another connection, got %v", err)
	}
}

// TestWaiterOnSilentConnection makes the connection of a waiter silent, and releases the lock.
func TestWaiterOnSilentConnection(t *testing.T) {
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{})
	link := provision.NewProxy(t, s.Addr())
	folder := "/" + t.Name()
	l, err := open(t, "etcd://"+s.Addr()+folder).Mutex("k").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), keepAliveTime)
	defer cancel()
	waits, granted := make(chan struct{}), make(chan error, 1)
	observed := lock.WithObserver(&lock.Observer{Waiting: func(context.Context, lock.Event) { close(waits) }})
	m := open(t, "etcd://"+link.Addr()+folder, lock.WithTTL(3*time.Second), observed).Mutex("k")
	go func() {
		l, err := m.Lock(ctx)
		if err == nil {
			err = l.Unlock(t.Context())
		}
		granted <- err
	}()
	<-waits
	link.SilenceOpen()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatalf("a waiter whose connection fell silent: %v", err)
	}
}

func open(t *testing.T, url string, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url, append(opts, lock.WithLogger(nil))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
