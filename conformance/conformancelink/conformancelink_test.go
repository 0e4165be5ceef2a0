package conformancelink

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock/conformance"
)

// wire is a plain connection through a link, on which a test sees bytes rather than a client's retries.
type wire struct {
	net.Conn
	t *testing.T
}

func dial(t *testing.T, addr string) wire {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return wire{c, t}
}

func (w wire) send(line string) {
	w.t.Helper()
	_, err := w.Write([]byte(line + "\r\n"))
	must(w.t, err)
}

// read returns what arrives within the time given.
func (w wire) read(within time.Duration) (string, error) {
	must(w.t, w.SetReadDeadline(time.Now().Add(within)))
	buf := make([]byte, 1024)
	n, err := w.Read(buf)
	return string(bytes.TrimSpace(buf[:n])), err
}

func (w wire) wants(reply string) {
	w.t.Helper()
	if got, err := w.read(5 * time.Second); got != reply || err != nil {
		w.t.Fatalf("read %q, %v; want %q", got, err, reply)
	}
}

func (w wire) wantsSilence() {
	w.t.Helper()
	if got, err := w.read(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("read %q, %v; want nothing", got, err)
	}
}

func (w wire) wantsReset() {
	w.t.Helper()
	if got, err := w.read(5 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		w.t.Fatalf("read %q, %v; want a reset", got, err)
	}
}

// lost returns when so many connections have lost something: until then it may still arrive.
func lost(t *testing.T, k *Link, connections int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // between two looks
		k.mu.Lock()
		n := 0
		for c := range k.conns {
			if c.holed {
				n++
			}
		}
		k.mu.Unlock()
		if n == connections {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections have lost something, want %d", n, connections)
		}
	}
}

// server is a service with lines as requests: PING, SET key, SUBSCRIBE, QUIT.
type server struct {
	mu          sync.Mutex
	set         map[string]bool
	subscribers []net.Conn
	open        int // connections
}

func (s *server) serve(c net.Conn) {
	s.count(1)
	defer func() {
		s.count(-1)
		_ = c.Close()
	}()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		verb, key, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "SET":
			s.mu.Lock()
			s.set[key] = true
			s.mu.Unlock()
		case "SUBSCRIBE":
			s.mu.Lock()
			s.subscribers = append(s.subscribers, c)
			s.mu.Unlock()
		case "QUIT":
			return
		}
		_, _ = fmt.Fprint(c, "did "+verb+"\r\n")
	}
}

func (s *server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
}

func (s *server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *server) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set[key]
}

func (s *server) publish(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.subscribers {
		_, _ = fmt.Fprint(c, message+"\r\n")
	}
}

func linked(t *testing.T) (*Link, *server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &server{set: map[string]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	k, err := New(l.Addr().String())
	must(t, err)
	t.Cleanup(func() {
		k.Close()
		_ = l.Close()
	})
	return k, s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answers fails the test unless a new connection is served.
func answers(t *testing.T, k *Link) {
	t.Helper()
	w := dial(t, k.Addr())
	w.send("PING")
	w.wants("did PING")
	must(t, w.Close())
}

var _ interface {
	conformance.Link
	conformance.ReplyCutter
	conformance.ReplySilencer
	conformance.ConnectionSilencer
} = (*Link)(nil)

func TestLinkPasses(t *testing.T) {
	t.Parallel()
	k, _ := linked(t)
	answers(t, k)
	w := dial(t, k.Addr())
	w.send("PING")
	w.wants("did PING")
	w.send("QUIT")
	if _, err := w.read(5 * time.Second); !errors.Is(err, io.EOF) {
		t.Errorf("after QUIT: %v, want %v", err, io.EOF)
	}
}

func TestLinkCut(t *testing.T) {
	t.Parallel()
	k, _ := linked(t)
	w := dial(t, k.Addr())
	w.send("PING")
	w.wants("did PING")
	k.Cut()
	w.wantsReset()
	if _, err := net.Dial("tcp", k.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial while cut: %v, want %v", err, syscall.ECONNREFUSED)
	}
	k.Heal()
	answers(t, k)
	if n := k.Connections(); n > 1 {
		t.Errorf("%d connections, want the last one at most", n)
	}
}

func TestLinkBlackhole(t *testing.T) {
	t.Parallel()
	k, s := linked(t)
	w, leaving := dial(t, k.Addr()), dial(t, k.Addr())
	w.send("PING")
	w.wants("did PING")
	leaving.send("PING")
	leaving.wants("did PING")
	k.Blackhole()
	w.send("SET k")
	lost(t, k, 1)
	w.wantsSilence()
	if s.has("k") {
		t.Error("a request passed a blackhole")
	}
	must(t, leaving.Close())
	lost(t, k, 2)
	if n := s.connections(); n != 2 {
		t.Errorf("the server has %d connections, want 2: it does not learn through a blackhole that a client has left", n)
	}
	k.Heal()
	w.wantsReset()
	answers(t, k)
}

func TestLinkBlackholeReplies(t *testing.T) {
	t.Parallel()
	k, s := linked(t)
	w := dial(t, k.Addr())
	k.BlackholeReplies()
	w.send("SET k")
	lost(t, k, 1)
	w.wantsSilence()
	if !s.has("k") {
		t.Error("the request did not reach the server")
	}
	k.Delay(0)
	w.wantsReset()
}

func TestLinkBlackholeRequests(t *testing.T) {
	t.Parallel()
	k, s := linked(t)
	listener, w := dial(t, k.Addr()), dial(t, k.Addr())
	listener.send("SUBSCRIBE")
	listener.wants("did SUBSCRIBE")
	k.BlackholeRequests()
	w.send("SET k")
	lost(t, k, 1)
	w.wantsSilence()
	if s.has("k") {
		t.Error("a request passed the blackhole")
	}
	s.publish("news")
	listener.wants("news")
	k.Heal()
	w.wantsReset()
}

func TestLinkStallAndDelay(t *testing.T) {
	t.Parallel()
	k, _ := linked(t)
	w := dial(t, k.Addr())
	k.Stall()
	w.send("PING")
	w.wantsSilence()
	k.Heal()
	w.wants("did PING")

	const d = 50 * time.Millisecond
	k.Delay(d)
	sent := time.Now()
	w.send("PING")
	w.wants("did PING")
	if took := time.Since(sent); took < 2*d {
		t.Errorf("round trip took %v, want at least %v", took, 2*d)
	}
	sent = time.Now()
	for range 5 { // all on their way at the same time
		w.send("PING")
		time.Sleep(d / 5) // so that they are chunks of their own
	}
	for n := 0; n < 5; {
		got, err := w.read(5 * time.Second)
		must(t, err)
		n += strings.Count(got, "did PING")
	}
	if took := time.Since(sent); took < 2*d || took > 6*d {
		t.Errorf("five round trips that overlap took %v, want about %v: a delay does not add up over chunks", took, 3*d)
	}
	k.Jitter(d, d)
	for range 3 {
		sent = time.Now()
		w.send("PING")
		w.wants("did PING")
		if took := time.Since(sent); took < 2*d {
			t.Errorf("round trip with jitter took %v, want at least %v", took, 2*d)
		}
	}
}

func TestLinkResetPeer(t *testing.T) {
	t.Parallel()
	k, _ := linked(t)
	w := dial(t, k.Addr())
	w.send("PING")
	w.wants("did PING")
	k.ResetPeer()
	w.wantsReset()
	answers(t, k)
}

func TestLinkDropsOne(t *testing.T) {
	t.Parallel()
	k, s := linked(t)
	sets := func(request []byte) bool { return bytes.HasPrefix(request, []byte("SET")) }

	dropped := k.DropReply(sets)
	w := dial(t, k.Addr())
	w.send("PING")
	w.wants("did PING")
	w.send("SET executed")
	w.wantsReset()
	<-dropped
	if !s.has("executed") {
		t.Error("DropReply: the request was not executed")
	}

	dropped = k.DropRequest(sets)
	w = dial(t, k.Addr())
	w.send("SET lost")
	w.wantsReset()
	<-dropped
	if s.has("lost") {
		t.Error("DropRequest: the request was executed")
	}
	answers(t, k)
}
