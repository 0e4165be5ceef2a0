package redislock

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and a server. Its hook sees each piece that a
// client sends, on the connection's goroutine.
type proxy struct {
	addr string
	l    net.Listener

	mu    sync.Mutex
	hook  func(p []byte) action
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

type action int

const (
	pass  action = iota
	drop         // deliver it, and cut the connection instead of answering
	never        // cut the connection instead of delivering it
)

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{addr: l.Addr().String(), l: l, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c, server) })
		}
	})
	t.Cleanup(func() { l.Close(); p.cut(); p.wg.Wait() })
	return p
}

func (p *proxy) serve(c net.Conn, server string) {
	s, err := net.Dial("tcp", server)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var mu sync.Mutex
	deaf := false
	p.wg.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, err := s.Read(b)
			mu.Lock()
			d := deaf
			mu.Unlock()
			if n > 0 && !d {
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
			a := pass
			if h != nil {
				a = h(b[:n])
			}
			if a == never {
				break
			}
			mu.Lock()
			deaf = deaf || a == drop
			mu.Unlock()
			_, _ = s.Write(b[:n])
			if a == drop {
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

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// next lets the next script by that name meet a.
func (p *proxy) next(s *script, a action) {
	p.set(onScript(s, func() action { p.set(nil); return a }))
}

func (p *proxy) set(h func([]byte) action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = h
}

func onScript(s *script, f func() action) func([]byte) action {
	return func(b []byte) action {
		if bytes.Contains(b, []byte(s.sha)) {
			return f()
		}
		return pass
	}
}
