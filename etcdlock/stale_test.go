package etcdlock

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance/conformancelink"
)

// TestSilentConnection makes the connection of a client silent.
func TestSilentConnection(t *testing.T) {
	link, err := conformancelink.New(server(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	b, err := openURL(t, "etcd://"+link.Addr())
	if err != nil {
		t.Fatal(err)
	}
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

func TestCloseSilent(t *testing.T) {
	c := newConnections(nil)
	open := func() (conn, peer net.Conn) {
		raw, peer := net.Pipe()
		conn, _, err := c.ClientHandshake(t.Context(), "server", raw)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
		return conn, peer
	}
	isOpen := func(conn net.Conn) bool {
		if err := conn.SetReadDeadline(time.Now()); err != nil {
			return false
		}
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	silent, _ := open()
	answered, server := open()
	sent := time.Now()
	go func() { _, _ = server.Write([]byte("x")) }()
	if _, err := answered.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	later, _ := open()
	c.closeSilent(sent)
	for name, conn := range map[string]net.Conn{"read from since": answered, "opened since": later} {
		if !isOpen(conn) {
			t.Errorf("a connection %s: want it open", name)
		}
	}
	if isOpen(silent) {
		t.Error("a connection from which nothing was read: want it closed")
	}
	for _, conn := range []net.Conn{silent, answered, later} {
		_ = conn.Close()
	}
	if len(c.open) != 0 {
		t.Errorf("want no connections, got %d", len(c.open))
	}
}

// TestWaiterOnSilentConnection makes the connection of a waiter silent, and releases the lock.
func TestWaiterOnSilentConnection(t *testing.T) {
	for _, view := range []string{"0", "32"} {
		link, err := conformancelink.New(server(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(link.Close)
		b, err := openURL(t, "etcd://"+link.Addr()+"/"+t.Name()+"?queue_view="+view)
		if err != nil {
			t.Fatal(err)
		}
		other := newBackend(t, server(t))
		g := try(t, other, request("k", time.Minute))
		next := waiting(t, t.Context(), b.(*Backend), request("k", 3*time.Second))
		link.SilenceOpen()
		release(t, g)
		select {
		case o := <-next:
			if o.err != nil {
				t.Fatalf("queue_view=%s: %v", view, o.err)
			}
			release(t, o.g)
		case <-time.After(keepAliveTime):
			t.Fatalf("queue_view=%s: no grant in %v", view, keepAliveTime)
		}
	}
}
