package zklock

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// session is one session at the service. All requests with the same TTL share it: its
// timeout is the TTL. A session that has ended is never used again; the next request
// opens another one.
type session struct {
	b     *Backend
	ttl   time.Duration // its key in Backend.sessions
	conn  *zk.Conn
	clock *sessionClock
	zxid  atomic.Int64 // the last one that a reply contained

	opened chan struct{} // closed when the session is ready for use
	done   chan struct{} // closed when it has ended
	ending context.Context
	cancel context.CancelFunc // of ending: stops dialing
	events <-chan zk.Event    // closed when the goroutines of the library have ended
	calls  sync.WaitGroup     // requests without a reply, and other goroutines of the session

	confirming  chan struct{} // capacity 1: a confirm is under way
	confirmSent time.Time     // of the last one; for the owner of confirming

	mu        sync.Mutex       // guards the fields below
	err       error            // why it has ended
	wire      *wireConn        // the current connection
	number    int              // of the current connection, see connNumber
	connected chan struct{}    // closed when it is connected; another one after the connection is lost
	dialErr   error            // of the last connection that failed
	users     int              // attempts and grants
	idleSince time.Time        // when users became zero
	pinned    bool             // its connection was given to the caller: never idle
	views     map[string]*view // by lock node
}

// newSession returns a session that begins to connect. b.mu must be held: the
// callbacks of the library must not see it half made.
func (b *Backend) newSession(ttl time.Duration) (*session, error) {
	s := &session{
		b: b, ttl: ttl, views: map[string]*view{},
		opened: make(chan struct{}), done: make(chan struct{}), connected: make(chan struct{}), confirming: make(chan struct{}, 1),
		clock: &sessionClock{current: sessionTimes{timeout: ttl}, relay: relayTime(b.limits.least)},
	}
	s.ending, s.cancel = context.WithCancel(context.Background())
	ms := (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
	conn, events, err := zk.Connect(b.addrs, ms,
		zk.WithDialer(s.dial), zk.WithHostProvider(&hosts{s: s, current: -1}), zk.WithEventCallback(s.onEvent),
		zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	s.conn, s.events = conn, events
	b.closing.Add(1) // until s.close
	return s, nil
}

// hosts returns the servers in turn. Their names are resolved for each connection.
type hosts struct {
	s       *session
	addrs   []string
	current int
}

func (h *hosts) Init(addrs []string) error { h.addrs = addrs; return nil }
func (h *hosts) Len() int                  { return len(h.addrs) }
func (h *hosts) Connected()                {}

// Next reports the end of a round only if the session has ended: the library then
// looks whether it was closed. Otherwise it would pause for a second; dial pauses.
func (h *hosts) Next() (string, bool) {
	h.current = (h.current + 1) % len(h.addrs)
	return h.addrs[h.current], h.s.ending.Err() != nil
}

// dial is called by the library for one connection after the other. It refuses when the
// session has ended: the library would open a new session by itself, and execute
// in it what was meant for the old one.
//
// dial also refuses if no server has answered for the timeout. No lease of the session
// is trusted any more, but a resumption whose reply is lost would keep the locks
// for another timeout.
func (s *session) dial(_, addr string, _ time.Duration) (net.Conn, error) {
	s.mu.Lock()
	failed := s.dialErr != nil
	s.mu.Unlock()
	if failed { // one round of all servers takes 200 ms at least
		sleep(s.ending, 200*time.Millisecond/time.Duration(len(s.b.addrs)))
	}
	if s.ending.Err() != nil {
		return nil, errSessionExpired
	}
	timeout := s.clock.times().timeout
	if last := s.clock.times().answeredAt; !last.IsZero() && time.Since(last) > timeout {
		s.end(errNoAnswer)
		return nil, errNoAnswer
	}
	ctx, cancel := withLimit(s.ending, min(max(timeout/3, 250*time.Millisecond), s.b.opt.dialTimeout))
	defer cancel()
	c, err := s.b.opt.dial(ctx, addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.dialErr = dialError(ctx, addr, err)
		return nil, s.dialErr
	}
	if s.ending.Err() != nil {
		_ = c.Close()
		return nil, errSessionExpired
	}
	s.dialErr = fmt.Errorf("%s does not answer", addr) // until it does
	s.wire = newWireConn(c, s.clock, &s.zxid, min(max(timeout/3, time.Second), s.b.opt.dialTimeout))
	return s.wire, nil
}

// onEvent is called by the goroutines of the library and must not block.
func (s *session) onEvent(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	if e.State == zk.StateExpired {
		s.end(errSessionExpired)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch connected := isReady(s.connected); {
	case e.State == zk.StateHasSession:
		s.number++
		s.dialErr = nil
		if !connected {
			close(s.connected)
		}
	case e.State == zk.StateDisconnected && connected:
		s.connected = make(chan struct{})
	}
}

// end ends the session once, and closes it in the background.
func (s *session) end(why error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = why
	close(s.done)
	s.mu.Unlock()
	s.cancel() // no more connections from here on
	s.b.remove(s)
	go s.close()
}

// close closes the connection. It returns when no goroutine of the session runs any more.
func (s *session) close() {
	defer s.b.closing.Done()
	cut := time.AfterFunc(700*time.Millisecond, s.cut) // the server may not answer the close request
	s.conn.Close()
	cut.Stop()
	s.cut()
	for range s.events { // until it is closed
	}
	s.calls.Wait()
}

func (s *session) cut() {
	s.mu.Lock()
	w := s.wire
	s.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}

// startCall counts a goroutine that close waits for. It fails if the session has ended.
func (s *session) startCall() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.calls.Add(1)
	}
	return s.err
}

// endErr returns why the session has ended, nil if it has not.
func (s *session) endErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// awaitConnection returns when the session is connected, or why it is not.
func (s *session) awaitConnection(ctx context.Context) error {
	s.mu.Lock()
	connected := s.connected
	s.mu.Unlock()
	select {
	case <-connected:
		return s.endErr()
	case <-s.done:
		return s.endErr()
	case <-ctx.Done():
		return s.notConnected(ctx)
	}
}

// notConnected returns the error of a wait for the connection that ctx ended.
func (s *session) notConnected(ctx context.Context) error {
	s.mu.Lock()
	err := s.dialErr
	s.mu.Unlock()
	if err == nil {
		err = fmt.Errorf("the connection to %s was lost", strings.Join(s.b.addrs, ","))
	}
	return fmt.Errorf("zookeeper: not connected (%w): %w", err, endOf(ctx))
}

// connNumber returns the number of the current connection. A watch is in force from the request that set it to the end of its
// connection, and again when the library has set it on the next one.
func (s *session) connNumber() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number
}

// usable reports whether a request can be sent now, as far as is known.
func (s *session) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return isReady(s.opened) && isReady(s.connected)
}

// retain counts a user of the session. It returns false if the session has ended.
func (s *session) retain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.users++
	}
	return s.err == nil
}

func (s *session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.idleSince = time.Now()
	}
}

// inUse reports whether the session's clock must be kept fresh.
func (s *session) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users > 0
}

// isReady reports whether a receive from c does not block. It receives.
func isReady[T any](c <-chan T) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sleep returns after d or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
