package provision

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection through a [Proxy].
type link struct {
	proxy          *Proxy
	client, server net.Conn
	holed          bool                 // bytes or a close were lost: it may never carry anything again; under proxy.mu
	trap           atomic.Pointer[trap] // lose what the server says next
	over           chan struct{}        // closed by reset
	once           sync.Once
}

// chunk is what was read at once; err ends the stream.
type chunk struct {
	data []byte
	err  error
	at   time.Time
	luck float64 // which part of the jitter it gets
}

func (l *link) run() {
	var both sync.WaitGroup
	both.Go(func() { l.pipe(l.client, l.server, true) })
	both.Go(func() { l.pipe(l.server, l.client, false) })
	both.Wait()
	if l.isHoled() {
		<-l.over // neither side may learn that the other has gone
		return
	}
	l.forget(closeBoth)
}

// pipe carries one direction. Reading runs ahead of writing, so that a delay does not add up over chunks.
func (l *link) pipe(from, to net.Conn, request bool) {
	chunks := make(chan chunk, 256)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		defer close(chunks)
		for {
			buf := make([]byte, 64<<10)
			n, err := from.Read(buf)
			select {
			case chunks <- chunk{buf[:n], err, time.Now(), rand.Float64()}:
			case <-l.over:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for c := range chunks {
		if !l.deliver(c, to, request) {
			return
		}
	}
}

// deliver brings one chunk to its side when and if the network lets it, and reports whether the stream goes on.
func (l *link) deliver(c chunk, to net.Conn, request bool) bool {
	if !l.wait(c) {
		return false
	}
	if l.loses(request) {
		return c.err == nil
	}
	if c.err != nil && l.isHoled() {
		return false
	}
	if len(c.data) > 0 {
		if !request && l.proxy.cutsReply() {
			l.proxy.ResetPeer()
			return false
		}
		if t := l.spring(c.data, request); t != nil {
			l.forget(resetBoth)
			close(t.sprung)
			return false
		}
		if _, err := to.Write(c.data); err != nil {
			l.forget(resetBoth)
			return false
		}
	}
	switch {
	case c.err == nil:
		return true
	case errors.Is(c.err, io.EOF):
		_ = to.(*net.TCPConn).CloseWrite()
	default:
		l.forget(resetBoth) // a reset goes through as a reset
	}
	return false
}

// spring returns the trap that this chunk completes.
func (l *link) spring(data []byte, request bool) *trap {
	if !request {
		return l.trap.Load()
	}
	t := l.proxy.trapped(data)
	if t != nil && t.reply {
		l.trap.Store(t)
		return nil
	}
	return t
}

// loses reports whether the network loses this direction now, and remembers the hole.
func (l *link) loses(request bool) bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	f := l.proxy.fault
	if request && f.loseRequests || !request && f.loseReplies {
		l.holed = true
		return true
	}
	return false
}

func (l *link) isHoled() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	return l.holed
}

// wait returns when a chunk is due; false when the link is over before that.
func (l *link) wait(c chunk) bool {
	for {
		f, changed := l.proxy.current()
		left := f.delay + time.Duration(c.luck*float64(f.jitter)) - time.Since(c.at)
		var due <-chan time.Time
		switch {
		case f.stall:
		case left <= 0:
			select {
			case <-l.over:
				return false
			default:
				return true
			}
		default:
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-l.over:
			return false
		}
	}
}

// forget ends the link and takes it off the proxy's list.
func (l *link) forget(end func(a, b net.Conn)) {
	l.end(end)
	l.proxy.mu.Lock()
	delete(l.proxy.links, l)
	l.proxy.mu.Unlock()
}

func (l *link) reset() { l.end(resetBoth) }

func (l *link) end(end func(a, b net.Conn)) {
	l.once.Do(func() {
		close(l.over)
		end(l.client, l.server)
	})
}

func resetBoth(a, b net.Conn) {
	reset(a)
	reset(b)
}

func closeBoth(a, b net.Conn) {
	_ = a.Close()
	_ = b.Close()
}

// reset closes a connection with RST, as a crashed peer or a firewall does.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
