package zklock

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeServer implements as much of the protocol as a session needs: it resumes every
// session, has each node that is read, and answers an exists request with no.
type fakeServer struct {
	listener net.Listener
	each     int // requests for each connection, 0: unlimited
	// handle, if not nil, answers a request, or returns done false
	handle      func(op int32, req []byte) (body []byte, code int32, done bool)
	silent      atomic.Bool // replies are not sent
	zxid        atomic.Int64
	handshakes  atomic.Int64
	setWatches  atomic.Int64 // requests that set watches again
	withoutZxid atomic.Int64 // of those, and of resumptions
	wg          sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newFakeServer(t *testing.T, each int) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{listener: l, each: each}
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			f.wg.Go(func() {
				defer c.Close()
				_ = f.serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.cut()
		f.wg.Wait()
	})
	return f
}

// cut closes all connections.
func (f *fakeServer) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
}

func readFrame(c net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	p := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<16))
	_, err := io.ReadFull(c, p)
	return p, err
}

func (f *fakeServer) reply(c net.Conn, p []byte) error {
	if f.silent.Load() {
		return nil
	}
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...))
	return err
}

func (f *fakeServer) serve(c net.Conn) error {
	hello, err := readFrame(c)
	if err != nil {
		return err
	}
	if f.handshakes.Add(1) > 1 && binary.BigEndian.Uint64(hello[4:]) == 0 {
		f.withoutZxid.Add(1)
	}
	p := append(make([]byte, 4), hello[12:16]...) // the timeout that was asked for
	p = binary.BigEndian.AppendUint64(p, 7)
	p = binary.BigEndian.AppendUint32(p, 16)
	if err := f.reply(c, append(p, make([]byte, 16)...)); err != nil {
		return err
	}
	for n := 0; f.each == 0 || n < f.each; n++ {
		req, err := readFrame(c)
		if err != nil {
			return err
		}
		const exists, get, ping, closeSession, noNode = 3, 4, 11, -11, -101
		zxid, code, body := f.zxid.Add(1), int32(0), []byte(nil)
		op := int32(binary.BigEndian.Uint32(req[4:]))
		switch op {
		case exists:
			code = noNode
		case get:
			body = make([]byte, 4+68) // no data, and a stat
		case setWatches:
			f.setWatches.Add(1)
			if binary.BigEndian.Uint64(req[8:]) == 0 {
				f.withoutZxid.Add(1)
			}
		case ping:
			n--
		}
		if f.handle != nil {
			if b, c, done := f.handle(op, req[8:]); done {
				body, code = b, c
			}
		}
		p := append([]byte(nil), req[:4]...)
		p = binary.BigEndian.AppendUint64(p, uint64(zxid))
		p = binary.BigEndian.AppendUint32(p, uint32(code))
		if err := f.reply(c, append(p, body...)); err != nil {
			return err
		}
		if op == closeSession {
			return nil
		}
	}
	return errors.New("served enough requests")
}

func newTestBackend(f *fakeServer) *Backend {
	b := newBackend(defaults(), []string{f.listener.Addr().String()})
	b.svc.opt.dialTimeout = 10 * time.Second
	return b
}

// newTestSession returns a session that is connected to f. It ends with the test.
func newTestSession(t *testing.T, f *fakeServer, ttl time.Duration) *session {
	t.Helper()
	s := newTestBackend(f).svc
	ss, err := s.pin(ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ss.end(errSessionClosed)
		s.closing.Wait()
	})
	if err := ss.awaitOpen(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ss
}
