package etcdlock

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

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
