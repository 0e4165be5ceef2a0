package memcachelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
)

// node is a server of the list, or the client that was given to New. The client library keeps idle connections and opens
// another one whenever it has none; node bounds how many requests, and so how many connections, there are at a time.
type node struct {
	client *memcache.Client
	dial   func(context.Context) (net.Conn, error) // nil with the client that was given to New
	any    chan struct{}                           // has an element for each request under way
	held   chan struct{}                           // the same, of renewals and releases that found any full
}

func newNode(client *memcache.Client, connections int) *node {
	held := max(1, connections/4)
	return &node{client: client, any: make(chan struct{}, connections-held), held: make(chan struct{}, held)}
}

// begin waits until a request may be sent, for the timeout of an exchange and its repetition at most: an exchange
// that is under way then has begun later. end must be called when the request has ended.
func (n *node) begin(ctx context.Context, held bool) (end func(), err error) {
	var reserve chan struct{}
	if held {
		reserve = n.held
	}
	limit := time.NewTimer(2 * n.timeout())
	defer limit.Stop()
	select {
	case n.any <- struct{}{}:
		return func() { <-n.any }, nil
	case reserve <- struct{}{}:
		return func() { <-reserve }, nil
	case <-limit.C:
		return nil, backend.NotExecuted(fmt.Errorf("memcached: all %d connections were in use for %v", cap(n.any)+cap(n.held), 2*n.timeout()))
	case <-ctx.Done():
		return nil, backend.NotExecuted(fmt.Errorf("memcached: no free connection yet: %w", ctx.Err()))
	}
}

func (n *node) timeout() time.Duration {
	if n.client.Timeout > 0 {
		return n.client.Timeout
	}
	return memcache.DefaultTimeout
}

// send sends a request, which must be harmless if it is executed twice. If its connection has ended, or there is no
// answer, the request is repeated once with a new connection: the server, a proxy or a router may have forgotten all
// that were idle, so they are closed.
func (n *node) send(ctx context.Context, request func() error) error {
	err := request()
	if !unanswered(err) || ctx.Err() != nil {
		return err
	}
	_ = n.client.Close() // of the connections that are idle; the client stays usable
	return request()
}

// unanswered reports whether a connection was there and has brought no answer.
func unanswered(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, end) {
			return !notOpened(err)
		}
	}
	return false
}

// notOpened reports whether the error is that of a connection that was not opened: nothing was sent.
func notOpened(err error) bool {
	var timeout *memcache.ConnectTimeoutError
	var op *net.OpError
	return errors.Is(err, errDial) || errors.As(err, &timeout) || errors.As(err, &op) && op.Op == "dial"
}
