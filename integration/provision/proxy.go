package provision

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy on loopback that a test bends as a network would: cut, stalled, slow, losing bytes.
//
// It is our own rather than toxiproxy's: that library brings an HTTP API, metrics and a logger with their modules,
// removes a blackhole only by closing its connections, and cannot lose the reply to one chosen request.
//
// Methods may be called from any goroutine. Their faults replace each other, and apply to connections that are open
// and to new ones, until [Proxy.Heal].
type Proxy struct {
	upstream string
	port     *reservedPort
	wg       sync.WaitGroup

	mu       sync.Mutex
	host     string
	listener net.Listener // nil while cut
	closed   bool
	links    map[*link]struct{}
	fault    fault
	changed  chan struct{} // closed when fault changes
	traps    []*trap
	replies  int // to be delivered before all connections are cut, if cutting
	cutting  bool
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

// NewProxy starts a proxy to upstream, a host:port. It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	port, err := reservePort()
	if err != nil {
		t.Fatalf("provision: proxy: %v", err)
	}
	p := &Proxy{upstream: upstream, port: port, host: "127.0.0.1", links: map[*link]struct{}{}, changed: make(chan struct{})}
	if err := p.Heal(); err != nil {
		port.release()
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// Addr returns the host:port to connect to instead of the upstream.
func (p *Proxy) Addr() string { return p.port.addr() }

// Cut resets every connection and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopListening()
	p.setFault(fault{})
	p.resetLinks(func(*link) bool { return true })
}

// Blackhole makes all bytes vanish both ways, and the news that a side has closed with them; connections stay open.
func (p *Proxy) Blackhole() { p.set(fault{loseRequests: true, loseReplies: true}) }

// BlackholeReplies lets requests through to the server and makes everything it answers vanish.
func (p *Proxy) BlackholeReplies() { p.set(fault{loseReplies: true}) }

// BlackholeRequests makes everything that is sent to the server vanish and lets what it says through.
func (p *Proxy) BlackholeRequests() { p.set(fault{loseRequests: true}) }

// Stall holds all bytes back both ways; they arrive, late, after Heal, as they do after a short partition.
func (p *Proxy) Stall() { p.set(fault{stall: true}) }

// Delay holds all bytes back for d each way, in order.
func (p *Proxy) Delay(d time.Duration) { p.set(fault{delay: d}) }

// Jitter is [Proxy.Delay] by d and, for each chunk, up to so much more.
func (p *Proxy) Jitter(d, more time.Duration) { p.set(fault{delay: d, jitter: more}) }

// ResetPeer resets every connection; new ones are welcome.
func (p *Proxy) ResetPeer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetLinks(func(*link) bool { return true })
}

// Heal ends every fault. A connection that lost bytes is reset, since TCP never delivers a stream with a hole.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setFault(fault{})
	p.traps, p.cutting = nil, false
	for l := range p.links {
		l.trap.Store(nil)
	}
	p.resetLinks(func(l *link) bool { return l.holed })
	if p.listener != nil || p.closed {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(p.host, strconv.Itoa(p.port.port)))
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// DropReply lets the next request that match accepts (any, if nil) through to the server, loses what the server says
// next on that connection and then resets it: the request was executed and its sender cannot know. The channel is
// closed when it has happened. match sees a chunk of the stream, which is one command or pipeline unless that is larger than 64 kB.
func (p *Proxy) DropReply(match func(request []byte) bool) <-chan struct{} {
	return p.trap(match, true)
}

// DropRequest is [Proxy.DropReply], but the server does not get the request either.
func (p *Proxy) DropRequest(match func(request []byte) bool) <-chan struct{} {
	return p.trap(match, false)
}

// CutAfterReplies lets n more chunks of what the server says through and resets every connection in place of the next
// one. Connections made after that work.
func (p *Proxy) CutAfterReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies, p.cutting = n, true
}

// cutsReply counts a chunk of replies, and reports whether it is the one that is cut off.
func (p *Proxy) cutsReply() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cutting {
		return false
	}
	if p.replies > 0 {
		p.replies--
		return false
	}
	p.cutting = false
	return true
}

// Connections returns how many connections are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) trap(match func([]byte) bool, reply bool) <-chan struct{} {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &trap{match: match, reply: reply, sprung: make(chan struct{})}
	p.traps = append(p.traps, t)
	return t.sprung
}

// trapped takes the first trap set for request out of the list.
func (p *Proxy) trapped(request []byte) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.traps {
		if t.match(request) {
			p.traps = append(p.traps[:i:i], p.traps[i+1:]...)
			return t
		}
	}
	return nil
}

func (p *Proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !f.loseRequests || !f.loseReplies {
		// Bytes may pass again.
		p.resetLinks(func(l *link) bool { return l.holed })
	}
	p.setFault(f)
}

func (p *Proxy) setFault(f fault) {
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// current returns the fault and a channel that is closed when it changes.
func (p *Proxy) current() (fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) resetLinks(which func(*link) bool) {
	for l := range p.links {
		if which(l) {
			l.reset()
			delete(p.links, l)
		}
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.stopListening()
	p.resetLinks(func(*link) bool { return true })
	p.mu.Unlock()
	p.wg.Wait()
	p.port.release()
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(listener, client) })
	}
}

func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	server, err := net.DialTimeout("tcp", p.upstream, 10*time.Second)
	if err != nil {
		reset(client)
		return
	}
	l := &link{proxy: p, client: client, server: server, over: make(chan struct{})}
	p.mu.Lock()
	if p.listener != listener { // cut meanwhile
		p.mu.Unlock()
		l.reset()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	l.run()
}
