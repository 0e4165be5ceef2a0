package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire is a plain connection through a proxy, on which a test sees bytes rather than a client's retries.
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
func lost(t *testing.T, p *Proxy, connections int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, until(ctx, func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for l := range p.links {
			if l.holed {
				n++
			}
		}
		if n != connections {
			return fmt.Errorf("%d connections have lost something, want %d", n, connections)
		}
		return nil
	}))
}

func proxied(t *testing.T) (*Proxy, *redis.Client) {
	t.Helper()
	s := NewRedis(t, AnyRedis, Options{})
	direct := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = direct.Close() })
	return NewProxy(t, s.Addr()), direct
}

func TestProxyPasses(t *testing.T) {
	t.Parallel()
	p, _ := proxied(t)
	must(t, pingAt(t, p.Addr(), 5*time.Second))
	w := dial(t, p.Addr())
	w.send("PING")
	w.wants("+PONG")
	w.send("QUIT")
	w.wants("+OK")
	if _, err := w.read(5 * time.Second); !errors.Is(err, io.EOF) {
		t.Errorf("after QUIT: %v, want %v", err, io.EOF)
	}
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	p, _ := proxied(t)
	w := dial(t, p.Addr())
	w.send("PING")
	w.wants("+PONG")
	p.Cut()
	w.wantsReset()
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial while cut: %v, want %v", err, syscall.ECONNREFUSED)
	}
	must(t, p.Heal())
	must(t, pingAt(t, p.Addr(), 5*time.Second))
	if n := p.Connections(); n > 1 {
		t.Errorf("%d connections, want the last one at most", n)
	}
}

func TestProxyBlackhole(t *testing.T) {
	t.Parallel()
	p, direct := proxied(t)
	w, leaving := dial(t, p.Addr()), dial(t, p.Addr())
	w.send("PING")
	w.wants("+PONG")
	leaving.send("CLIENT SETNAME leaving")
	leaving.wants("+OK")
	p.Blackhole()
	w.send("SET k v")
	lost(t, p, 1)
	w.wantsSilence()
	if n := direct.Exists(t.Context(), "k").Val(); n != 0 {
		t.Error("a request passed a blackhole")
	}
	must(t, leaving.Close())
	lost(t, p, 2)
	if list := direct.ClientList(t.Context()).Val(); !bytes.Contains([]byte(list), []byte("name=leaving")) {
		t.Error("the server learnt through a blackhole that its client had left")
	}
	must(t, p.Heal())
	w.wantsReset()
	must(t, pingAt(t, p.Addr(), 5*time.Second))
}

func TestProxyBlackholeReplies(t *testing.T) {
	t.Parallel()
	p, direct := proxied(t)
	w := dial(t, p.Addr())
	p.BlackholeReplies()
	w.send("SET k v")
	lost(t, p, 1)
	w.wantsSilence()
	if n := direct.Exists(t.Context(), "k").Val(); n != 1 {
		t.Error("the request did not reach the server")
	}
	p.Delay(0)
	w.wantsReset()
}

func TestProxyBlackholeRequests(t *testing.T) {
	t.Parallel()
	p, direct := proxied(t)
	listener, w := dial(t, p.Addr()), dial(t, p.Addr())
	listener.send("SUBSCRIBE c")
	listener.wants("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1")
	p.BlackholeRequests()
	w.send("SET k v")
	lost(t, p, 1)
	w.wantsSilence()
	if n := direct.Exists(t.Context(), "k").Val(); n != 0 {
		t.Error("a request passed the blackhole")
	}
	must(t, direct.Publish(t.Context(), "c", "m").Err())
	listener.wants("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm")
	must(t, p.Heal())
	w.wantsReset()
}

func TestProxyStallAndDelay(t *testing.T) {
	t.Parallel()
	p, _ := proxied(t)
	w := dial(t, p.Addr())
	p.Stall()
	w.send("PING")
	w.wantsSilence()
	must(t, p.Heal())
	w.wants("+PONG")

	const d = 50 * time.Millisecond
	p.Delay(d)
	sent := time.Now()
	w.send("PING")
	w.wants("+PONG")
	if took := time.Since(sent); took < 2*d {
		t.Errorf("round trip took %v, want at least %v", took, 2*d)
	}
	p.Jitter(d, d)
	for range 3 {
		sent = time.Now()
		w.send("PING")
		w.wants("+PONG")
		if took := time.Since(sent); took < 2*d {
			t.Errorf("round trip with jitter took %v, want at least %v", took, 2*d)
		}
	}
}

func TestProxyResetPeer(t *testing.T) {
	t.Parallel()
	p, _ := proxied(t)
	w := dial(t, p.Addr())
	w.send("PING")
	w.wants("+PONG")
	p.ResetPeer()
	w.wantsReset()
	must(t, pingAt(t, p.Addr(), 5*time.Second))
}

func TestProxyDropsOne(t *testing.T) {
	t.Parallel()
	p, direct := proxied(t)
	sets := func(request []byte) bool { return bytes.HasPrefix(request, []byte("SET")) }

	dropped := p.DropReply(sets)
	w := dial(t, p.Addr())
	w.send("PING")
	w.wants("+PONG")
	w.send("SET executed v")
	w.wantsReset()
	<-dropped
	if n := direct.Exists(t.Context(), "executed").Val(); n != 1 {
		t.Error("DropReply: the request was not executed")
	}

	dropped = p.DropRequest(sets)
	w = dial(t, p.Addr())
	w.send("SET lost v")
	w.wantsReset()
	<-dropped
	if n := direct.Exists(t.Context(), "lost").Val(); n != 0 {
		t.Error("DropRequest: the request was executed")
	}
	must(t, pingAt(t, p.Addr(), 5*time.Second))
}

func TestProxyCutsAfterReplies(t *testing.T) {
	t.Parallel()
	p, direct := proxied(t)
	w, other := dial(t, p.Addr()), dial(t, p.Addr())
	other.send("PING") // until it is answered the proxy may not have the connection
	other.wants("+PONG")
	p.CutAfterReplies(1)
	w.send("PING")
	w.wants("+PONG")
	w.send("SET cut 1")
	w.wantsReset()
	other.wantsReset()
	if v, err := direct.Get(t.Context(), "cut").Result(); v != "1" || err != nil {
		t.Errorf("GET cut: %q, %v; want the request executed", v, err)
	}
	must(t, pingAt(t, p.Addr(), 5*time.Second))
}
