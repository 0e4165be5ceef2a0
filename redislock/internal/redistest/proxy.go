package redistest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Proxy is a TCP proxy before a server. It calls its hook with the data of each read from
// a client, on the goroutine of the connection.
type Proxy struct {
	Addr string
	l    net.Listener

	mu    sync.Mutex
	hook  func(p []byte) Action
	conns map[net.Conn]bool
	era   int // a connection of an earlier one is silent
	to    string
	wg    sync.WaitGroup
}

// Action is what the proxy does with the data.
type Action int

// The actions.
const (
	Pass  Action = iota // deliver it
	Drop                // deliver it, and cut the connection instead of answering
	Never               // cut the connection instead of delivering it
)

// NewProxy starts one before a server.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	p := &Proxy{Addr: l.Addr().String(), l: l, conns: map[net.Conn]bool{}, to: server}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); p.Cut(); p.wg.Wait() })
	return p
}

// Silence drops all data of the connections that are open now, without closing them, like a router that has
// forgotten them. New connections work.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.era++
}

// To sets the server of new connections, like a name that moves.
func (p *Proxy) To(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = server
}

func (p *Proxy) silent(era int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.era != era
}

func (p *Proxy) serve(c net.Conn) {
	p.mu.Lock()
	server, era := p.to, p.era
	p.mu.Unlock()
	s, err := net.Dial("tcp", server)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var mu sync.Mutex
	dropReplies := false
	p.wg.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, err := s.Read(b)
			mu.Lock()
			d := dropReplies
			mu.Unlock()
			if n > 0 && !d && !p.silent(era) {
				_, _ = c.Write(b[:n])
			}
			if err != nil || d {
				c.Close()
				s.Close()
				return
			}
		}
	})
	b := make([]byte, 1<<16)
	for {
		n, err := c.Read(b)
		if n > 0 {
			p.mu.Lock()
			h := p.hook
			p.mu.Unlock()
			a := Pass
			if h != nil {
				a = h(b[:n])
			}
			if a == Never {
				break
			}
			mu.Lock()
			dropReplies = dropReplies || a == Drop
			mu.Unlock()
			if !p.silent(era) {
				_, _ = s.Write(b[:n])
			}
			if a == Drop {
				return // closed after the reply, which proves the execution
			}
		}
		if err != nil {
			break
		}
	}
	c.Close()
	s.Close()
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// Next applies a to the next request that runs the script.
func (p *Proxy) Next(s *protocol.Script, a Action) {
	p.Set(OnScript(s, func() Action { p.Set(nil); return a }))
}

// Set sets the hook, nil for none.
func (p *Proxy) Set(h func([]byte) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = h
}

// OnScript is a hook that calls f with each request that runs the script.
func OnScript(s *protocol.Script, f func() Action) func([]byte) Action {
	return func(b []byte) Action {
		if bytes.Contains(b, []byte(s.SHA)) {
			return f()
		}
		return Pass
	}
}

// Hooked reports whether there is a hook.
func (p *Proxy) Hooked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hook != nil
}

// SubscribeHangs holds back the first n subscriptions, and passes the others.
func SubscribeHangs(t testing.TB, p *Proxy, n int64) (kept *atomic.Int64) {
	t.Helper()
	end := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(end) }))
	kept = new(atomic.Int64)
	p.Set(func(b []byte) Action {
		if bytes.Contains(b, []byte("subscribe")) && kept.Add(1) <= n {
			<-end
			return Never
		}
		return Pass
	})
	return kept
}

// Refuse closes the listener: later connections are refused.
func (p *Proxy) Refuse() { p.l.Close() }
