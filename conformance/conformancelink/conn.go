package conformancelink

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection through a [Link].
type conn struct {
	link           *Link
	client, server net.Conn
	holed          bool                 // bytes or a close were lost: it may never carry anything again; under link.mu
	silent         bool                 // it loses everything, whatever the fault; under link.mu
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

func (c *conn) run() {
	var both sync.WaitGroup
	both.Go(func() { c.pipe(c.client, c.server, true) })
	both.Go(func() { c.pipe(c.server, c.client, false) })
	both.Wait()
	if c.isHoled() {
		<-c.over // neither side may learn that the other has gone
		return
	}
	c.forget(closeBoth)
}

// pipe carries one direction. Reading runs ahead of writing, so that a delay does not add up over chunks.
func (c *conn) pipe(from, to net.Conn, request bool) {
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
			case <-c.over:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for ch := range chunks {
		if !c.deliver(ch, to, request) {
			return
		}
	}
}

// deliver writes a chunk to its side when it is due, unless the network loses it. It reports whether the stream continues.
func (c *conn) deliver(ch chunk, to net.Conn, request bool) bool {
	if !c.wait(ch) {
		return false
	}
	if !request && len(ch.data) > 0 {
		if last := c.link.takeReply(); last != nil {
			last()
		}
	}
	if c.loses(request) {
		return ch.err == nil
	}
	if ch.err != nil && c.isHoled() {
		return false
	}
	if len(ch.data) > 0 {
		if t := c.spring(ch.data, request); t != nil {
			c.forget(resetBoth)
			close(t.sprung)
			return false
		}
		if _, err := to.Write(ch.data); err != nil {
			c.forget(resetBoth)
			return false
		}
	}
	switch {
	case ch.err == nil:
		return true
	case errors.Is(ch.err, io.EOF):
		_ = to.(*net.TCPConn).CloseWrite()
	default:
		c.forget(resetBoth) // a reset goes through as a reset
	}
	return false
}

// spring returns the trap that this chunk completes.
func (c *conn) spring(data []byte, request bool) *trap {
	if !request {
		return c.trap.Load()
	}
	t := c.link.trapped(data)
	if t != nil && t.reply {
		c.trap.Store(t)
		return nil
	}
	return t
}

// loses reports whether the network loses this direction now, and remembers the hole.
func (c *conn) loses(request bool) bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	f := c.link.fault
	if c.silent || request && f.loseRequests || !request && f.loseReplies {
		c.holed = true
		return true
	}
	return false
}

func (c *conn) isHoled() bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.holed
}

// wait returns true when a chunk is due, false if the connection ends before.
func (c *conn) wait(ch chunk) bool {
	for {
		f, changed := c.link.current()
		left := f.delay + time.Duration(ch.luck*float64(f.jitter)) - time.Since(ch.at)
		var due <-chan time.Time
		switch {
		case f.stall:
		case left <= 0:
			select {
			case <-c.over:
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
		case <-c.over:
			return false
		}
	}
}

// forget ends the connection and removes it from the link.
func (c *conn) forget(end func(a, b net.Conn)) {
	c.end(end)
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
}

func (c *conn) reset() { c.end(resetBoth) }

func (c *conn) end(end func(a, b net.Conn)) {
	c.once.Do(func() {
		close(c.over)
		end(c.client, c.server)
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
