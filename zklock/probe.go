package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"time"
)

// dialer connects to a server, with TLS if that is configured.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// limits are the bounds of the session timeouts that a server grants.
type limits struct{ least, most time.Duration }

// probe asks the servers, one after the other until one answers, for the bounds of
// session timeouts. There is no request for them, so probe opens sessions with timeouts
// that are out of bounds, and closes them.
func probe(ctx context.Context, dial dialer, addrs []string, each time.Duration) (limits, error) {
	var errs error
	for _, i := range rand.Perm(len(addrs)) {
		one, cancel := withLimit(ctx, each)
		most, err := negotiate(one, dial, addrs[i], math.MaxInt32)
		var least time.Duration
		if err == nil {
			least, err = negotiateLeast(one, dial, addrs[i])
		}
		cancel()
		if err == nil {
			return limits{least, most}, nil
		}
		if errs != nil {
			err = fmt.Errorf("%w; %w", errs, err)
		}
		errs = err
		if ctx.Err() != nil {
			break
		}
	}
	return limits{}, fmt.Errorf("zookeeper: no server answers: %w", errs)
}

const shortSessions = 5 // that negotiateLeast opens

// negotiateLeast opens a session with the least timeout, a few times: a server that is slow may end such a session, and its
// connection, before it answers.
func negotiateLeast(ctx context.Context, dial dialer, addr string) (least time.Duration, err error) {
	for range shortSessions {
		if least, err = negotiate(ctx, dial, addr, 1); !errors.Is(err, errClosedByServer) {
			break
		}
	}
	return least, err
}

var errClosedByServer = errors.New("the server closed the connection: it may have no quorum, be too slow, or have too many connections of this client")

// negotiate opens a session with a timeout in milliseconds, closes it, and returns the
// timeout that the server granted.
func negotiate(ctx context.Context, dial dialer, addr string, ms int32) (time.Duration, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return 0, dialError(ctx, addr, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()

	p := make([]byte, 4+44) // the handshake
	binary.BigEndian.PutUint32(p, 44)
	binary.BigEndian.PutUint32(p[4+12:], uint32(ms))
	binary.BigEndian.PutUint32(p[4+24:], 16)
	p = append(p, 0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5) // close the session
	head := make([]byte, 4+16)
	if _, err = c.Write(p); err == nil {
		_, err = io.ReadFull(c, head)
	}
	size := binary.BigEndian.Uint32(head)
	switch {
	case err == nil && (size < 16 || size > 1024):
		err = errors.New("the reply is not that of a ZooKeeper server")
	case err != nil && ctx.Err() != nil:
		err = endOf(ctx)
	case errors.Is(err, io.EOF):
		err = errClosedByServer
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", addr, err)
	}
	_, _ = io.ReadFull(c, make([]byte, size-16+1)) // until the server has closed the session
	return time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond, nil
}
