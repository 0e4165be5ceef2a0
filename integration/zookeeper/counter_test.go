package zookeeper_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// counter is a proxy that counts the requests of its clients by operation. The
// server's own counters include pings.
type counter struct {
	upstream string
	listener net.Listener
	wg       sync.WaitGroup

	mu        sync.Mutex
	conns     map[net.Conn]struct{}
	ops       map[int32]int64
	passwords map[int64][]byte // of the sessions
}

const (
	opDelete      = 2
	opGet         = 4
	opPing        = 11
	opChildren    = 12
	opMulti       = 14
	opClose       = -11
	opSetWatches  = 101
	opSetWatches2 = 105
)

func newCounter(t testing.TB, upstream string) *counter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{upstream: upstream, listener: l, conns: map[net.Conn]struct{}{}, ops: map[int32]int64{}, passwords: map[int64][]byte{}}
	c.wg.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.mu.Lock()
		for conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c
}

func (c *counter) addr() string { return c.listener.Addr().String() }

// total returns the number of requests, without pings and those that begin, resume or
// end a session.
func (c *counter) total() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int64
	for op, k := range c.ops {
		switch op {
		case opPing, opClose, opSetWatches, opSetWatches2:
		default:
			n += k
		}
	}
	return n
}

// since returns the counts since an earlier snapshot.
func (c *counter) since(before map[int32]int64) map[int32]int64 {
	diff := c.snapshot()
	for op, n := range before {
		diff[op] -= n
	}
	return diff
}

func (c *counter) snapshot() map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := map[int32]int64{}
	for op, n := range c.ops {
		m[op] = n
	}
	return m
}

func (c *counter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.wg.Go(func() { c.serve(client) })
	}
}

func (c *counter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	c.mu.Lock()
	c.conns[client], c.conns[server] = struct{}{}, struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, client)
		delete(c.conns, server)
	}()
	var both sync.WaitGroup
	both.Go(func() {
		c.replies(server, client)
		_ = client.Close()
	})
	c.requests(client, server)
	_ = server.Close()
	both.Wait()
}

// replies forwards the replies of the server. The first one contains the session id and
// password.
func (c *counter) replies(server io.Reader, client io.Writer) {
	hello := make([]byte, 40)
	n, err := io.ReadFull(server, hello)
	if err == nil {
		c.mu.Lock()
		c.passwords[int64(binary.BigEndian.Uint64(hello[12:]))] = hello[24:40]
		c.mu.Unlock()
	}
	if _, werr := client.Write(hello[:n]); err == nil && werr == nil {
		_, _ = io.Copy(client, server)
	}
}

// requests forwards whole frames. All but the first are requests.
func (c *counter) requests(client io.Reader, server io.Writer) {
	buf := make([]byte, 4096)
	for first := true; ; first = false {
		if _, err := io.ReadFull(client, buf[:4]); err != nil {
			return
		}
		n := 4 + int(binary.BigEndian.Uint32(buf))
		if n > len(buf) {
			buf = append(buf, make([]byte, n-len(buf))...)
		}
		if _, err := io.ReadFull(client, buf[4:n]); err != nil {
			return
		}
		if !first && n >= 12 {
			c.mu.Lock()
			c.ops[int32(binary.BigEndian.Uint32(buf[8:]))]++
			c.mu.Unlock()
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
