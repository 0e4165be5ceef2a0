// Package conformancelink is a TCP link that a test disturbs as a network would: cut, stalled, slow, losing bytes.
// A driver's test passes it to the conformance suite, which needs it for the most valuable cases:
//
//	OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
//		link, err := conformancelink.New(serverAddr)
//		if err != nil {
//			return nil, nil, err
//		}
//		t.Cleanup(link.Close)
//		b, err := Open(ctx, "toy://"+link.Addr())
//		return b, link, err
//	},
//
// A delay is pipelined, as that of a long line is: chunks that are sent together arrive together, however many are
// on their way.
//
// The link forwards bytes and knows no protocol. A client library that learns the addresses of its servers from a
// server (a cluster, Sentinel) bypasses the link, unless it can be configured not to.
package conformancelink

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Link is a TCP proxy on loopback to one server. It is a conformance.Link, a conformance.ReplyCutter, a
// conformance.ReplySilencer and a conformance.ConnectionSilencer.
//
// Methods may be called from any goroutine. A fault replaces the one before. It applies to connections that are open
// and to new ones, until Heal.
type Link struct {
	upstream string
	listen   func() (net.Listener, error)
	addr     string
	wg       sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while cut
	closed   bool
	conns    map[*conn]struct{}
	fault    fault
	changed  chan struct{} // closed when fault changes
	traps    []*trap
	replies  int    // to be delivered before last
	last     func() // what happens in place of the next one; nil: nothing
	err      error  // of the last attempt to listen again
}

type fault struct {
	loseRequests, loseReplies bool
	stall                     bool
	delay                     time.Duration // of each direction
	jitter                    time.Duration // at most, added to delay
}

// trap waits for one request.
type trap struct {
	match  func(request []byte) bool
	reply  bool // lose the reply, else the request
	sprung chan struct{}
}

// New starts a link on a free port of the loopback interface to upstream, a host:port. Close ends it.
func New(upstream string) (*Link, error) {
	addr := "127.0.0.1:0"
	return NewOn(upstream, func() (net.Listener, error) {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			addr = l.Addr().String()
		}
		return l, err
	})
}

// NewOn is New with a listener of the caller's. NewOn calls listen, and Heal does after Cut; each call must return a
// listener at the same address. Calls do not overlap.
func NewOn(upstream string, listen func() (net.Listener, error)) (*Link, error) {
	k := &Link{upstream: upstream, listen: listen, conns: map[*conn]struct{}{}, changed: make(chan struct{})}
	k.Heal()
	if k.err != nil {
		return nil, fmt.Errorf("conformancelink: %w", k.err)
	}
	k.addr = k.listener.Addr().String()
	return k, nil
}

// Addr returns the host:port to connect to instead of the upstream.
func (k *Link) Addr() string { return k.addr }

// Cut resets every connection and refuses new ones.
func (k *Link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopListening()
	k.setFault(fault{})
	k.resetConns(func(*conn) bool { return true })
}

// Blackhole drops all bytes both ways; connections stay open. If one side closes a connection, the other side does not
// learn of it.
func (k *Link) Blackhole() { k.set(fault{loseRequests: true, loseReplies: true}) }

// BlackholeReplies lets requests through to the server and drops what the server answers.
func (k *Link) BlackholeReplies() { k.set(fault{loseReplies: true}) }

// BlackholeRequests drops what is sent to the server and lets through what the server says.
func (k *Link) BlackholeRequests() { k.set(fault{loseRequests: true}) }

// Stall holds all bytes back both ways; they arrive, late, after Heal, as they do after a short partition.
func (k *Link) Stall() { k.set(fault{stall: true}) }

// Delay holds all bytes back for d each way, in order.
func (k *Link) Delay(d time.Duration) { k.set(fault{delay: d}) }

// Jitter is [Link.Delay] by d and, for each chunk, up to so much more.
func (k *Link) Jitter(d, more time.Duration) { k.set(fault{delay: d, jitter: more}) }

// ResetPeer resets every connection and accepts new ones.
func (k *Link) ResetPeer() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resetConns(func(*conn) bool { return true })
}

// Heal ends every fault. A connection that lost bytes is reset, since TCP never delivers a stream with a hole. If the
// link cannot listen again, it stays cut, and Err returns why.
func (k *Link) Heal() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.setFault(fault{})
	k.traps, k.last = nil, nil
	for c := range k.conns {
		c.trap.Store(nil)
	}
	k.resetConns(func(c *conn) bool { return c.holed || c.silent })
	if k.listener != nil || k.closed {
		return
	}
	l, err := k.listen()
	k.err = err
	if err == nil {
		k.listener = l
		k.wg.Go(func() { k.accept(l) })
	}
}

// Err returns why the link could not listen again after Cut, nil if it could.
func (k *Link) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// DropReply lets the next request that match accepts (any, if nil) through to the server, drops what the server says
// next on that connection and then resets it: the request was executed and its sender cannot know. The channel is
// closed when it has happened. match sees a chunk of the stream, which is one command or pipeline unless that is larger
// than 64 kB.
func (k *Link) DropReply(match func(request []byte) bool) <-chan struct{} {
	return k.trap(match, true)
}

// DropRequest is [Link.DropReply], but the server does not get the request either.
func (k *Link) DropRequest(match func(request []byte) bool) <-chan struct{} {
	return k.trap(match, false)
}

// SilenceOpen drops all bytes both ways on the connections that are open now, without closing them, as a network does
// in which a router has forgotten them. Connections made after that work.
func (k *Link) SilenceOpen() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		c.silent = true
	}
}

// CutAfterReplies lets n more chunks of what the server says through and resets every connection in place of the next
// one. Connections made after that work.
func (k *Link) CutAfterReplies(n int) { k.afterReplies(n, k.ResetPeer) }

// SilenceAfterReplies lets n more chunks of what the server says through. From the next one on it is
// [Link.BlackholeReplies].
func (k *Link) SilenceAfterReplies(n int) { k.afterReplies(n, k.BlackholeReplies) }

func (k *Link) afterReplies(n int, last func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replies, k.last = n, last
}

// takeReply counts a chunk of replies. It returns what happens in its place, nil if it is delivered.
func (k *Link) takeReply() (last func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		return nil
	}
	if k.replies > 0 {
		k.replies--
		return nil
	}
	last, k.last = k.last, nil
	return last
}

// Connections returns how many connections are open.
func (k *Link) Connections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.conns)
}

func (k *Link) trap(match func([]byte) bool, reply bool) <-chan struct{} {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := &trap{match: match, reply: reply, sprung: make(chan struct{})}
	k.traps = append(k.traps, t)
	return t.sprung
}

// trapped takes the first trap set for request out of the list.
func (k *Link) trapped(request []byte) *trap {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, t := range k.traps {
		if t.match(request) {
			k.traps = append(k.traps[:i:i], k.traps[i+1:]...)
			return t
		}
	}
	return nil
}

func (k *Link) set(f fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !f.loseRequests || !f.loseReplies {
		// Bytes may pass again.
		k.resetConns(func(c *conn) bool { return c.holed })
	}
	k.setFault(f)
}

func (k *Link) setFault(f fault) {
	k.fault = f
	close(k.changed)
	k.changed = make(chan struct{})
}

// current returns the fault and a channel that is closed when it changes.
func (k *Link) current() (fault, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault, k.changed
}

func (k *Link) stopListening() {
	if k.listener != nil {
		_ = k.listener.Close()
		k.listener = nil
	}
}

func (k *Link) resetConns(which func(*conn) bool) {
	for c := range k.conns {
		if which(c) {
			c.reset()
			delete(k.conns, c)
		}
	}
}

// Close resets every connection, refuses new ones for good, and returns when the link has ended.
func (k *Link) Close() {
	k.mu.Lock()
	k.closed = true
	k.stopListening()
	k.resetConns(func(*conn) bool { return true })
	k.mu.Unlock()
	k.wg.Wait()
}

func (k *Link) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example, the process has too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		k.wg.Go(func() { k.serve(listener, client) })
	}
}

func (k *Link) serve(listener net.Listener, client net.Conn) {
	server, err := net.DialTimeout("tcp", k.upstream, 10*time.Second)
	if err != nil {
		reset(client)
		return
	}
	c := &conn{link: k, client: client, server: server, over: make(chan struct{})}
	k.mu.Lock()
	if k.listener != listener { // cut meanwhile
		k.mu.Unlock()
		c.reset()
		return
	}
	k.conns[c] = struct{}{}
	k.mu.Unlock()
	c.run()
}
