package provision

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// callback stands before the election port of a ZooKeeper server that is called by one with a lower number. Of two
// servers the higher keeps the connection that it has made itself: it hangs up on the lower and calls back, at the
// address by which that has introduced itself. That is the server's own port, beside all proxies, so callback puts the
// address of the proxy in its place.
type callback struct {
	listener net.Listener
	upstream string
	back     string
	wg       sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]struct{} // nil when closed
}

// newCallback returns the host:port at which callers of upstream are given back as their address.
func newCallback(t testing.TB, upstream, back string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("provision: %v", err)
	}
	c := &callback{listener: l, upstream: upstream, back: back, open: map[net.Conn]struct{}{}}
	c.wg.Go(func() {
		for {
			caller, err := l.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.serve(caller) })
		}
	})
	t.Cleanup(c.close)
	return l.Addr().String()
}

func (c *callback) serve(caller net.Conn) {
	defer c.keep(caller)()
	server, err := net.Dial("tcp", c.upstream)
	if err != nil {
		return
	}
	defer c.keep(server)()
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		_, _ = io.Copy(caller, server)
		_ = caller.Close()
	})
	if c.introduce(caller, server) == nil {
		_, _ = io.Copy(server, caller)
	}
	_ = server.Close()
}

// introduce passes on the first message of a caller: the version of the protocol, which is negative, its number, and
// the length and text of its address.
func (c *callback) introduce(caller io.Reader, server io.Writer) error {
	head := make([]byte, 8+8+4)
	if _, err := io.ReadFull(caller, head); err != nil {
		return err
	}
	if int64(binary.BigEndian.Uint64(head)) >= 0 {
		return errors.New("a protocol without addresses")
	}
	if _, err := io.CopyN(io.Discard, caller, int64(binary.BigEndian.Uint32(head[16:]))); err != nil {
		return err
	}
	hello := binary.BigEndian.AppendUint32(head[:16:16], uint32(len(c.back)))
	_, err := server.Write(append(hello, c.back...))
	return err
}

// keep makes close end a connection, until the result is called, which does so too.
func (c *callback) keep(conn net.Conn) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		_ = conn.Close()
	} else {
		c.open[conn] = struct{}{}
	}
	return func() {
		_ = conn.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, conn)
	}
}

func (c *callback) close() {
	_ = c.listener.Close()
	c.mu.Lock()
	for conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
	c.mu.Unlock()
	c.wg.Wait()
}
