package zklock

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// at is an instant in milliseconds.
func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

var epoch = time.Now()

func ms(t time.Time) int64 {
	if t.Before(epoch) {
		return -1
	}
	return t.Sub(epoch).Milliseconds()
}

func TestClock(t *testing.T) {
	const timeout, relay = 1000, 100
	type packet struct {
		sent, answered int
		change         bool
	}
	for name, c := range map[string]struct {
		handshake int // -1: none
		packets   []packet
		until     int64
	}{
		"nothing known":                               {-1, nil, -1},
		"a handshake counts":                          {10, nil, 1010},
		"pings alone prove nothing":                   {0, []packet{{300, 310, false}, {600, 610, false}}, 1000},
		"a change proves a packet answered before":    {0, []packet{{300, 310, false}, {600, 610, true}}, 1300},
		"a change does not prove itself":              {0, []packet{{600, 610, true}}, 1000},
		"no proof of an answer within the relay time": {0, []packet{{300, 310, false}, {550, 555, false}, {600, 610, true}}, 1300},
		"no proof of a packet that was answered late": {0, []packet{{300, 590, false}, {600, 610, true}}, 1000},
		"changes prove earlier changes":               {0, []packet{{200, 210, true}, {400, 410, true}, {600, 610, true}}, 1400},
		"a later change proves an unproven packet":    {0, []packet{{550, 555, false}, {600, 610, true}, {900, 910, true}}, 1600},
		"without a handshake":                         {-1, []packet{{300, 310, false}, {600, 610, true}}, 1300},
		"an answer out of order is harmless":          {0, []packet{{300, 310, false}, {600, 610, true}, {200, 620, false}}, 1300},
		"a refused change proves nothing":             {0, []packet{{300, 310, false}, {600, 610, false}}, 1000},
	} {
		k := &sessionClock{current: sessionTimes{timeout: timeout * time.Millisecond}, relay: relay * time.Millisecond, news: make(chan struct{})}
		if c.handshake >= 0 {
			k.connected(at(c.handshake), timeout*time.Millisecond)
		}
		for _, p := range c.packets {
			k.answered(at(p.sent), at(p.answered), p.change)
		}
		if got := ms(k.times().until()); got != c.until {
			t.Errorf("%s: until %d, want %d", name, got, c.until)
		}
	}
}

func TestClockForgetsUnreportedPackets(t *testing.T) {
	k := &sessionClock{current: sessionTimes{timeout: time.Second}, relay: 100 * time.Millisecond, news: make(chan struct{})}
	k.connected(at(0), time.Second)
	k.answered(at(500), at(510), false)
	k.connected(at(520), 800*time.Millisecond) // a server with a lower bound
	if got := ms(k.times().until()); got != 1320 {
		t.Errorf("until %d, want 1320", got)
	}
	k.answered(at(600), at(610), false)
	k.connected(time.Time{}, 0)
	k.answered(at(900), at(910), true)
	if got := ms(k.times().until()); got != 1320 {
		t.Errorf("until %d after a change of server, want 1320", got)
	}
}

// TestWireConn receives frames in pieces of many sizes.
func TestWireConn(t *testing.T) {
	frame := func(body ...any) []byte {
		b := make([]byte, 4)
		for _, v := range body {
			b, _ = binary.Append(b, binary.BigEndian, v)
		}
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return b
	}
	var in []byte
	in = append(in, frame(int32(0), int32(900), int64(77), int32(16), make([]byte, 16), byte(0))...) // handshake
	in = append(in, frame(int32(-2), int64(5), int32(0))...)                                         // ping
	in = append(in, frame(int32(-1), int64(5), int32(0), make([]byte, 40))...)                       // event
	in = append(in, frame(int32(7), int64(6), int32(0), make([]byte, 100))...)                       // multi
	for size := 1; size <= len(in); size += 3 {
		here, there := net.Pipe()
		k := &sessionClock{current: sessionTimes{timeout: time.Second}, relay: 0, news: make(chan struct{})}
		w := newWireConn(here, k, new(atomic.Int64), time.Minute)
		go func() {
			buf := make([]byte, 1024)
			for range 3 {
				_, _ = there.Read(buf)
			}
			for rest := in; len(rest) > 0; {
				n := min(size, len(rest))
				_, _ = there.Write(rest[:n])
				rest = rest[n:]
			}
			_ = there.Close()
		}()
		for _, p := range [][]byte{make([]byte, 48), frame(int32(-2), int32(11)), frame(int32(7), int32(14), int64(0))} {
			if _, err := w.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]byte, 64)
		for {
			if _, err := w.Read(buf); err != nil {
				break
			}
		}
		_ = here.Close()
		if k.current.timeout != 900*time.Millisecond || !w.ready || len(w.pings) != 0 || len(w.requests) != 0 || k.current.changedAt.IsZero() {
			t.Fatalf("in pieces of %d: %+v", size, k)
		}
	}
}

// TestWireConnNotesSendTime: the time of a packet is noted before it is sent.
func TestWireConnNotesSendTime(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	k := &sessionClock{current: sessionTimes{timeout: time.Minute}, relay: 0, news: make(chan struct{})}
	w := newWireConn(here, k, new(atomic.Int64), time.Minute)
	packet := func(body ...any) []byte {
		b := make([]byte, 4)
		for _, v := range body {
			b, _ = binary.Append(b, binary.BigEndian, v)
		}
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return b
	}
	exchange := func(request, answer []byte) (sent time.Time) {
		t.Helper()
		go func() {
			_, _ = there.Read(make([]byte, 1024))
			_, _ = there.Write(answer)
		}()
		if _, err := w.Write(request); err != nil {
			t.Fatal(err)
		}
		sent = time.Now()
		for n := 0; n < len(answer); {
			m, err := w.Read(make([]byte, 1024))
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		return sent
	}
	after := func(what string, at, sent time.Time) {
		t.Helper()
		if at.IsZero() || at.After(sent) {
			t.Errorf("%s: noted %v after it was sent", what, at.Sub(sent))
		}
	}
	sent := exchange(make([]byte, 48), packet(int32(0), int32(60_000), int64(77), int32(16), make([]byte, 16), byte(0)))
	after("the handshake", k.current.aliveAt, sent)
	sent = exchange(packet(int32(pingXid), int32(11)), packet(int32(pingXid), int64(5), int32(0)))
	after("a ping", k.unproven[len(k.unproven)-1].sent, sent)
	sent = exchange(packet(int32(1), int32(opMulti), int64(0)), packet(int32(1), int64(6), int32(0)))
	after("a change", k.current.changedAt, sent)
	before := k.current.changedAt
	exchange(packet(int32(2), int32(opMulti), int64(0)), packet(int32(2), int64(7), int32(-101)))
	if !k.current.changedAt.Equal(before) {
		t.Error("a refused change was noted")
	}
}

// TestTrust: a lease lasts its TTL from the last change, as far as a ping before that proves it.
func TestTrust(t *testing.T) {
	const ttl, relay = 1000, 100
	k := &sessionClock{
		current: sessionTimes{timeout: (ttl + relay) * time.Millisecond}, relay: relay * time.Millisecond, news: make(chan struct{}),
	}
	k.connected(at(0), (ttl+relay)*time.Millisecond)
	for _, c := range []struct {
		what           string
		sent, answered int
		change         bool
		want           int64
	}{
		{"the handshake", -1, -1, false, 0},
		{"a change soon after it", 50, 60, true, 50},
		{"a ping proves nothing", 300, 310, false, 50},
		{"a change after it", 420, 430, true, 400},
		{"a change that a ping before the relay time proves", 425, 440, true, 400},
	} {
		if c.sent >= 0 {
			k.answered(at(c.sent), at(c.answered), c.change)
		}
		if sent, most := k.trust(ttl * time.Millisecond); ms(sent) != c.want || most != ttl*time.Millisecond {
			t.Errorf("%s: trusted from %d for %v, want %d", c.what, ms(sent), most, c.want)
		}
	}
}
