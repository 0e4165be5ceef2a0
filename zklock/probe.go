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
	"strings"
	"time"
)

// dialer makes connections to servers, over TLS where that is configured.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// limits are the session timeouts that a server accepts.
type limits struct{ least, most time.Duration }

// probe asks the servers, one after the other until one answers, for the bounds
// of session timeouts. There is no request for them: it opens two sessions with
// what is certainly out of bounds, and closes them.
func probe(ctx context.Context, dial dialer, addrs []string, each time.Duration) (limits, error) {
	var errs []error
	for _, i := range rand.Perm(len(addrs)) {
		one, cancel := context.WithTimeout(ctx, each)
		var l limits
		var err error
		if l.least, err = negotiate(one, dial, addrs[i], 1); err == nil {
			l.most, err = negotiate(one, dial, addrs[i], math.MaxInt32)
		}
		cancel()
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return limits{}, fmt.Errorf("zookeeper: no server of %s answers: %w", strings.Join(addrs, ","), errors.Join(errs...))
}

// negotiate opens a session with a timeout in milliseconds, closes it, and
// returns what the server made of the timeout.
func negotiate(ctx context.Context, dial dialer, addr string, ms int32) (time.Duration, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()

	hello := make([]byte, 4+44)
	binary.BigEndian.PutUint32(hello, 44)
	binary.BigEndian.PutUint32(hello[4+12:], uint32(ms))
	binary.BigEndian.PutUint32(hello[4+24:], 16)
	_, err = c.Write(hello)
	var size [4]byte
	if err == nil {
		_, err = io.ReadFull(c, size[:])
	}
	n := binary.BigEndian.Uint32(size[:])
	if err == nil && (n < 16 || n > 1024) {
		err = errors.New("what answers is no ZooKeeper server")
	}
	reply := make([]byte, min(n, 1024))
	if err == nil {
		_, err = io.ReadFull(c, reply)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer in time: %w", ctx.Err())
		} else if errors.Is(err, io.EOF) {
			err = errors.New("the server closes connections: it may have no quorum, or too many connections of this client")
		}
		return 0, fmt.Errorf("%s: %w", addr, err)
	}
	// The session need not wait for its end. The reply, or the end of the
	// connection, says that it has been closed.
	bye := []byte{0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}
	if _, err = c.Write(bye); err == nil {
		_, _ = io.ReadFull(c, size[:])
	}
	return time.Duration(int32(binary.BigEndian.Uint32(reply[4:]))) * time.Millisecond, nil
}
