package zklock

import (
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// wire is a connection of our own. It reads along, since the client library hides
// when which packet was sent and answered, and bounds how long a server that
// accepts a connection may be silent: the library would wait for several timeouts.
//
// And it keeps the number of the last transaction in the library's place, which
// notes it from replies in one goroutine and reads it in another, without a lock, when
// it sets its watches anew: a data race, and more than the watches have seen if a
// reply comes first. So the library never sees such a number, and wherever it sends
// one the wire writes what had been seen when the connection was made.
type wire struct {
	net.Conn
	clock   *clock
	patient time.Duration // for the answer to the handshake

	mu     sync.Mutex
	opened time.Time // when the handshake was sent
	ready  bool      // it was answered
	pings  []time.Time
	sent   map[int32]sentRequest
	head   []byte // of the frame that is being received: length and 16 bytes
	skip   int    // bytes of it that are still to come

	zxid *atomic.Int64 // the session's
	from int64         // what it was when the connection was made
}

type sentRequest struct {
	at time.Time
	op int32
}

const (
	headLen  = 20
	eventXid = -1
	pingXid  = -2

	setWatches = 101
)

// changes are the operations that a majority of the servers must agree to. A sync
// is none: a leader that has been cut off answers it alone.
func changes(op int32) bool {
	switch op {
	case 1, 2, 5, 7, 14, 15, 19, 21: // create, delete, set, set ACL, multi, create2, container, TTL
		return true
	}
	return false
}

func newWire(c net.Conn, k *clock, zxid *atomic.Int64, patient time.Duration) *wire {
	return &wire{Conn: c, clock: k, patient: patient, sent: map[int32]sentRequest{}, zxid: zxid, from: zxid.Load()}
}

// SetReadDeadline bounds the library's patience with a handshake.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	ready := w.ready
	w.mu.Unlock()
	if most := time.Now().Add(w.patient); !ready && !t.IsZero() && t.After(most) {
		t = most
	}
	return w.Conn.SetReadDeadline(t)
}

// Write sees one whole packet: the library sends each with one call.
func (w *wire) Write(p []byte) (int, error) {
	now := time.Now() // before it is sent
	at := 0           // where the number of the last transaction belongs
	w.mu.Lock()
	switch {
	case w.opened.IsZero():
		w.opened = now
		if len(p) >= 16 {
			at = 8
		}
	case len(p) >= 12:
		xid := int32(binary.BigEndian.Uint32(p[4:]))
		if xid == pingXid {
			w.pings = append(w.pings, now)
		} else {
			op := int32(binary.BigEndian.Uint32(p[8:]))
			w.sent[xid] = sentRequest{now, op}
			if op == setWatches && len(p) >= 20 {
				at = 12
			}
		}
	}
	w.mu.Unlock()
	if at > 0 {
		p = slices.Clone(p)
		binary.BigEndian.PutUint64(p[at:], uint64(w.from))
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.follow(p[:n])
	}
	return n, err
}

// follow takes note of what was received, before the library sees it, and takes the
// transaction numbers out.
func (w *wire) follow(b []byte) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(b) > 0 {
		if w.skip > 0 {
			n := min(w.skip, len(b))
			w.skip -= n
			b = b[n:]
			continue
		}
		n := min(headLen-len(w.head), len(b))
		w.head = append(w.head, b[:n]...)
		if w.ready {
			clear(zxidIn(b[:n], len(w.head)-n))
		}
		b = b[n:]
		if len(w.head) < headLen {
			return
		}
		w.frame(now)
		w.skip = max(0, int(binary.BigEndian.Uint32(w.head))+4-headLen)
		w.head = w.head[:0]
	}
}

// zxidIn is what part of the head of a frame, from that offset on, belongs to the
// transaction number.
func zxidIn(head []byte, offset int) []byte {
	from, to := max(8-offset, 0), min(16-offset, len(head))
	return head[min(from, max(to, 0)):max(to, 0)]
}

// frame handles the head of one: of the handshake's answer protocol, timeout and
// session, of every other xid, zxid and error.
func (w *wire) frame(now time.Time) {
	h := w.head[4:]
	if !w.ready {
		w.ready = true
		if session := binary.BigEndian.Uint64(h[8:]); session != 0 {
			timeout := time.Duration(int32(binary.BigEndian.Uint32(h[4:]))) * time.Millisecond
			w.clock.handshake(w.opened, now, timeout)
		}
		return
	}
	switch xid := int32(binary.BigEndian.Uint32(h)); xid {
	case eventXid:
	case pingXid:
		if len(w.pings) > 0 {
			w.clock.answered(w.pings[0], now, false)
			w.pings = w.pings[1:]
		}
	default:
		if r, ok := w.sent[xid]; ok {
			delete(w.sent, xid)
			failed := binary.BigEndian.Uint32(h[12:]) != 0
			w.clock.answered(r.at, now, changes(r.op) && !failed)
		}
		if zxid := int64(binary.BigEndian.Uint64(h[4:])); zxid > 0 {
			w.zxid.Store(zxid)
		}
	}
}
