package redisurl

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// endpoint is what the connections to one address share.
type endpoint struct {
	// failed is a time since start: a connection that received nothing after it is not used again.
	failed atomic.Int64
}

var start = time.Now() // the epoch of the times below, which are monotonic

func now() int64 { return int64(time.Since(start)) }

func (e *endpoint) fail(at int64) {
	for {
		known := e.failed.Load()
		if known >= at || e.failed.CompareAndSwap(known, at) {
			return
		}
	}
}

// conn is a connection that leaves the pool after the failure of another one. If a request had no reply, a
// connection to the same address that received nothing since the request was sent may be dead like that one: a
// router forgot it. If the server replied that it cannot write, it may have been demoted, and a new connection
// may reach its successor. The pool calls SyscallConn before each use of a connection.
type conn struct {
	net.Conn
	socket   syscall.Conn // without TLS
	to       *endpoint
	sent     atomic.Int64 // the last request
	received atomic.Int64 // the last reply, or when the connection was made
}

var errStale = errors.New("another connection of the same age had no reply")

func (e *endpoint) conn(c net.Conn, socket syscall.Conn) *conn {
	out := &conn{Conn: c, socket: socket, to: e}
	out.received.Store(now())
	return out
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		at := now()
		c.received.Store(at)
		if cannotWrite(b[:n]) {
			c.to.fail(at + 1) // this connection too
		}
	case timedOut(err):
		c.to.fail(c.sent.Load())
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	sent := now()
	c.sent.Store(sent)
	n, err := c.Conn.Write(b)
	if timedOut(err) {
		c.to.fail(sent)
	}
	return n, err
}

// SyscallConn implements syscall.Conn, with which the pool finds out whether the connection is closed.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	switch {
	case c.received.Load() < c.to.failed.Load():
		return nil, errStale
	case c.socket == nil:
		return unchecked{}, nil
	}
	return c.socket.SyscallConn()
}

// unchecked is the socket of a TLS connection: bytes that wait there need not be a reply.
type unchecked struct{}

func (unchecked) Control(func(uintptr)) error    { return nil }
func (unchecked) Read(func(uintptr) bool) error  { return nil }
func (unchecked) Write(func(uintptr) bool) error { return nil }

func timedOut(err error) bool {
	if err == nil {
		return false
	}
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// cannotWrite reports whether a reply is the refusal of a server that is a replica, or that loads its data. Before
// Redis 7 the refusal of a write in a script begins with the place in the script.
func cannotWrite(reply []byte) bool {
	if reply[0] != '-' {
		return false
	}
	line, _, _ := bytes.Cut(reply, []byte("\r\n"))
	for _, refusal := range []string{"-READONLY ", "-LOADING ", "-MASTERDOWN "} {
		if bytes.Contains(line, []byte(refusal)) {
			return true
		}
	}
	return false
}
