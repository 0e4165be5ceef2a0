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
	if t.IsZero() {
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
		"nothing known":                              {-1, nil, -1},
		"a handshake counts":                         {10, nil, 1010},
		"pings alone prove nothing":                  {0, []packet{{300, 310, false}, {600, 610, false}}, 1000},
		"a change proves what was answered before":   {0, []packet{{300, 310, false}, {600, 610, true}}, 1300},
		"but not itself":                             {0, []packet{{600, 610, true}}, 1000},
		"nor what was answered within the relay":     {0, []packet{{300, 310, false}, {550, 555, false}, {600, 610, true}}, 1300},
		"nor what was sent early and answered late":  {0, []packet{{300, 590, false}, {600, 610, true}}, 1000},
		"changes prove each other":                   {0, []packet{{200, 210, true}, {400, 410, true}, {600, 610, true}}, 1400},
		"what was pending is proved by a later one":  {0, []packet{{550, 555, false}, {600, 610, true}, {900, 910, true}}, 1600},
		"without a handshake":                        {-1, []packet{{300, 310, false}, {600, 610, true}}, 1300},
		"what is answered out of order never harms":  {0, []packet{{300, 310, false}, {600, 610, true}, {200, 620, false}}, 1300},
		"a failed change proves nothing of its time": {0, []packet{{300, 310, false}, {600, 610, false}}, 1000},
	} {
		k := &clock{timeout: timeout * time.Millisecond, relay: relay * time.Millisecond}
		if c.handshake >= 0 {
			k.handshake(at(c.handshake), at(c.handshake+5), timeout*time.Millisecond)
		}
		for _, p := range c.packets {
			k.answered(at(p.sent), at(p.answered), p.change)
		}
		if got := ms(k.until()); got != c.until {
			t.Errorf("%s: until %d, want %d", name, got, c.until)
		}
	}
}

func TestClockForgetsWhatAnotherServerMayNotHaveToldOf(t *testing.T) {
	k := &clock{timeout: time.Second, relay: 100 * time.Millisecond}
	k.handshake(at(0), at(1), time.Second)
	k.answered(at(500), at(510), false)
	k.handshake(at(520), at(530), 800*time.Millisecond) // a server with a lower bound
	if got := ms(k.until()); got != 1320 {
		t.Errorf("until %d, want 1320", got)
	}
	k.answered(at(600), at(610), false)
	k.moved()
	k.answered(at(900), at(910), true)
	if got := ms(k.until()); got != 1320 {
		t.Errorf("until %d after a move, want 1320", got)
	}
}

// TestWire lets the connection read along in pieces of every size.
func TestWire(t *testing.T) {
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
		k := &clock{timeout: time.Second, relay: 0}
		w := newWire(here, k, new(atomic.Int64), time.Minute)
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
		if k.timeout != 900*time.Millisecond || !w.ready || len(w.pings) != 0 || len(w.sent) != 0 || k.change.IsZero() || k.lastAnswer().IsZero() {
			t.Fatalf("in pieces of %d: %+v", size, k)
		}
	}
}
