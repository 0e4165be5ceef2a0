package etcdlock

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// A network may forget connections without closing them: a router that restarts, an address that moves to another
// machine. gRPC itself notices that after keepAliveTime and keepAliveTimeout.

const (
	keepAliveTime    = 10 * time.Second // the least that gRPC allows
	keepAliveTimeout = 3 * time.Second  // after a ping of gRPC, or a request
	leastSilence     = 100 * time.Millisecond
)

// connections are those of a client that Open has made. After a request without an answer it closes those that may be
// dead, and gRPC dials again. It is nil for a client of the caller, whose connections stay.
type connections struct {
	credentials.TransportCredentials // see them for ClientHandshake

	mu   sync.Mutex // guards open
	open map[*connection]struct{}
}

func newConnections(config *tls.Config) *connections {
	c := &connections{TransportCredentials: insecure.NewCredentials(), open: map[*connection]struct{}{}}
	if config != nil {
		c.TransportCredentials = credentials.NewTLS(config)
	}
	return c
}

// Clone returns c, which does not change.
func (c *connections) Clone() credentials.TransportCredentials { return c }

// ClientHandshake registers a new connection. In a dialer gRPC would not use the proxy of the environment.
func (c *connections) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return conn, info, err
	}
	registered := &connection{Conn: conn, raw: raw, of: c}
	registered.received.Store(sinceEpoch(time.Now()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[registered] = struct{}{}
	return registered, info, nil
}

// intercept makes a request. If the answer takes longer than keepAliveTimeout, it closes silent connections meanwhile.
func (c *connections) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	sent := time.Now()
	silent := time.AfterFunc(keepAliveTimeout, func() { c.closeSilent(sent) })
	defer silent.Stop()
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err != nil {
		c.unanswered(ctx, sent)
	}
	return err
}

// unanswered closes silent connections after a request that failed, if the deadline of ctx ended it. A request that
// ends sooner than leastSilence without an answer says nothing of its connection.
func (c *connections) unanswered(ctx context.Context, sent time.Time) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(sent) >= leastSilence {
		c.closeSilent(sent)
	}
}

// closeSilent closes the connections that were opened before sent, and from which nothing was read since.
func (c *connections) closeSilent(sent time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if conn.received.Load() < sinceEpoch(sent) {
			_ = conn.raw.Close() // gRPC reads the error, and calls conn.Close
		}
	}
}

// connection is a connection with the time when something was read from it.
type connection struct {
	net.Conn
	raw      net.Conn // Conn without TLS: its Close does not wait for the peer
	of       *connections
	received atomic.Int64 // since epoch; at first when it was opened
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.received.Store(sinceEpoch(time.Now()))
	}
	return n, err
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

var epoch = time.Now()

func sinceEpoch(t time.Time) int64 { return int64(t.Sub(epoch)) }
