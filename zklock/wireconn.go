package zklock

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// wireConn is a connection of a session that the driver opened. It notes when each
// packet was sent and answered, which the client library does not report. It limits the
// time of the handshake, for which the library would wait ten session timeouts.
//
// It also replaces the library's record of the last transaction id (zxid). The
// library writes that record in one goroutine and reads it in another without a lock
// when it sets watches again after a reconnect: a data race, which can also skip events.
// So wireConn clears the zxid of each reply, and writes into each handshake and each
// setWatches request the last zxid that was received before this connection was made.
type wireConn struct {
	net.Conn
	clock     *sessionClock
	zxid      *atomic.Int64 // last one received in the session
	startZxid int64         // its value when the connection was made
	handshake *time.Timer   // closes the connection

	writing sync.Mutex // a packet is written at a time

	mu        sync.Mutex // guards the fields below
	sentAt    time.Time  // of the last packet
	helloSent time.Time
	ready     bool // the handshake was answered
	pings     []time.Time
	requests  map[int32]sentRequest // by xid

	// Only Read uses these.
	head []byte // what the library has not read yet of the head of a frame
	body int    // bytes that follow it
}

type sentRequest struct {
	at time.Time
	op int32
}

const (
	headLen    = 20 // of a frame: length, xid, zxid and error; the handshake's reply is longer
	eventXid   = -1
	pingXid    = -2
	opPing     = 11  // operation
	setWatches = 101 // operation
)

// isChange reports whether a majority must agree to the operation. It need not agree to a
// sync: a leader that was deposed answers it alone.
func isChange(op int32) bool {
	switch op {
	case 1, 2, 5, 7, 14, 15, 19, 21: // create, delete, set, set ACL, multi, create2, container, TTL
		return true
	}
	return false
}

func newWireConn(c net.Conn, k *sessionClock, zxid *atomic.Int64, handshakeTimeout time.Duration) *wireConn {
	return &wireConn{
		Conn: c, clock: k, zxid: zxid, startZxid: zxid.Load(), requests: map[int32]sentRequest{},
		handshake: time.AfterFunc(handshakeTimeout, func() { _ = c.Close() }),
	}
}

// ping sends a ping, unless a packet was sent a moment ago. The library pings three times in a timeout, and ignores
// answers to others.
func (w *wireConn) ping(pause time.Duration) {
	w.mu.Lock()
	due := w.ready && time.Since(w.sentAt) >= pause
	w.mu.Unlock()
	if due {
		_, _ = w.Write(binary.BigEndian.AppendUint32(append([]byte{0, 0, 0, 8}, 0xff, 0xff, 0xff, 0xfe), opPing))
	}
}

// Write sends one whole packet: the library sends each with one call.
func (w *wireConn) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	if at := w.noteSent(p, time.Now()); at > 0 {
		p = slices.Clone(p)
		binary.BigEndian.PutUint64(p[at:], uint64(w.startZxid))
	}
	return w.Conn.Write(p)
}

// noteSent notes a packet and returns the offset of the zxid in it, 0 if it has none.
func (w *wireConn) noteSent(p []byte, now time.Time) (zxidAt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sentAt = now
	if w.helloSent.IsZero() {
		w.helloSent = now
		if len(p) >= 16 {
			return 8
		}
	} else if len(p) >= 12 {
		xid, op := int32(binary.BigEndian.Uint32(p[4:])), int32(binary.BigEndian.Uint32(p[8:]))
		if xid == pingXid {
			w.pings = append(w.pings, now)
			return 0
		}
		w.requests[xid] = sentRequest{now, op}
		if op == setWatches && len(p) >= 20 {
			return 12
		}
	}
	return 0
}

// Read reads from one frame at most. The library calls it from one goroutine at a
// time and gives the connection up after an error.
func (w *wireConn) Read(p []byte) (int, error) {
	if len(w.head) == 0 && w.body == 0 {
		head := make([]byte, headLen)
		if _, err := io.ReadFull(w.Conn, head); err != nil {
			return 0, err
		}
		w.noteReceived(head, time.Now())
		w.head, w.body = head, max(0, int(binary.BigEndian.Uint32(head))+4-headLen)
	}
	if len(w.head) > 0 {
		n := copy(p, w.head)
		w.head = w.head[n:]
		return n, nil
	}
	n, err := w.Conn.Read(p[:min(len(p), w.body)])
	w.body -= n
	return n, err
}

// noteReceived notes the head of a frame and clears its zxid. After the length the
// reply to the handshake has protocol, timeout and session; any other frame has xid,
// zxid and error.
func (w *wireConn) noteReceived(head []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready {
		w.ready = true
		w.handshake.Stop()
		if session := binary.BigEndian.Uint64(head[12:]); session != 0 {
			timeout := time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond
			w.clock.connected(w.helloSent, timeout)
		}
		return
	}
	switch xid := int32(binary.BigEndian.Uint32(head[4:])); xid {
	case eventXid:
	case pingXid:
		if len(w.pings) > 0 {
			w.clock.answered(w.pings[0], now, false)
			w.pings = w.pings[1:]
		}
	default:
		if r, ok := w.requests[xid]; ok {
			delete(w.requests, xid)
			refused := binary.BigEndian.Uint32(head[16:]) != 0
			w.clock.answered(r.at, now, isChange(r.op) && !refused)
		}
		if zxid := int64(binary.BigEndian.Uint64(head[8:])); zxid > 0 {
			w.zxid.Store(zxid)
		}
	}
	clear(head[8:16])
}
