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
		k := &sessionClock{current: sessionTimes{timeout: timeout * time.Millisecond}, relay: relay * time.Millisecond}
		if c.handshake >= 0 {
			k.connected(at(c.handshake), at(c.handshake+5), timeout*time.Millisecond)
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
	k := &sessionClock{current: sessionTimes{timeout: time.Second}, relay: 100 * time.Millisecond}
	k.connected(at(0), at(1), time.Second)
	k.answered(at(500), at(510), false)
	k.connected(at(520), at(530), 800*time.Millisecond) // a server with a lower bound
	if got := ms(k.times().until()); got != 1320 {
		t.Errorf("until %d, want 1320", got)
	}
	k.answered(at(600), at(610), false)
	k.connected(time.Time{}, at(620), 0)
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
		k := &sessionClock{current: sessionTimes{timeout: time.Second}, relay: 0}
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
		if k.current.timeout != 900*time.Millisecond || !w.ready || len(w.pings) != 0 || len(w.requests) != 0 || k.current.changedAt.IsZero() || k.current.answeredAt.IsZero() {
			t.Fatalf("in pieces of %d: %+v", size, k)
		}
	}
}
