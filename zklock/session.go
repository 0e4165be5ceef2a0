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

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// session is one session at the service. All requests with the same TTL share it. Its timeout is longer than the TTL, by
// as much as an answer may be older than what the leader knows. A session that has ended is never used again; the next
// request opens another one.
type session struct {
	s     *service
	ttl   time.Duration
	conn  *zk.Conn
	clock *sessionClock
	zxid  atomic.Int64 // the last one that a reply contained

	opened chan struct{} // closed when the session is ready for use
	done   chan struct{} // closed when it has ended
	closed chan struct{} // closed when no goroutine of it runs any more
	ending context.Context
	cancel context.CancelFunc // of ending: stops dialing
	events <-chan zk.Event    // closed when the goroutines of the library have ended
	calls  sync.WaitGroup     // requests without a reply, and other goroutines of the session

	confirming chan struct{} // capacity 1: a confirm is under way
	pinned     bool          // its connection was given to the caller; guarded by service.mu

	mu        sync.Mutex                       // guards the fields below
	err       error                            // why it has ended
	wire      *wireConn                        // the current connection
	connected chan struct{}                    // closed when it is connected; another one after the connection is lost
	dialErr   error                            // of the last connection that failed
	watchers  map[string]map[*watcher]struct{} // by path
}

// newSession returns a session that begins to connect. s.mu must be held: the
// callbacks of the library must not see it half made.
func (s *service) newSession(ttl time.Duration) (*session, error) {
	if s.closed {
		return nil, backend.ErrClosed
	}
	relay := relayTime(s.limits.least)
	timeout := min(max(ttl+relay, s.limits.least), max(s.limits.most, ttl))
	ss := &session{
		s: s, ttl: ttl, watchers: map[string]map[*watcher]struct{}{},
		opened: make(chan struct{}), done: make(chan struct{}), closed: make(chan struct{}),
		connected: make(chan struct{}), confirming: make(chan struct{}, 1),
		clock: &sessionClock{current: sessionTimes{timeout: timeout}, relay: relay, news: make(chan struct{})},
	}
	ss.ending, ss.cancel = context.WithCancel(context.Background())
	ms := (timeout + time.Millisecond - 1).Truncate(time.Millisecond)
	conn, events, err := zk.Connect(s.addrs, ms,
		zk.WithDialer(ss.dial), zk.WithHostProvider(&hosts{s: ss, current: -1}), zk.WithEventCallback(ss.onEvent),
		zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	ss.conn, ss.events = conn, events
	s.sessions[ss] = struct{}{}
	s.closing.Add(1) // until ss.close
	ss.calls.Add(1)
	go ss.run()
	return ss, nil
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
func (ss *session) dial(_, addr string, _ time.Duration) (net.Conn, error) {
	ss.mu.Lock()
	failed := ss.dialErr != nil
	ss.mu.Unlock()
	if failed { // one round of all servers takes 200 ms at least
		call.Sleep(ss.ending, 200*time.Millisecond/time.Duration(len(ss.s.addrs)))
	}
	if ss.ending.Err() != nil {
		return nil, errSessionExpired
	}
	timeout := ss.clock.times().timeout
	ctx, cancel := withLimit(ss.ending, min(max(timeout/3, 250*time.Millisecond), ss.s.opt.dialTimeout))
	defer cancel()
	c, err := ss.s.opt.dial(ctx, addr)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if err != nil {
		ss.dialErr = dialError(ctx, addr, err)
		return nil, ss.dialErr
	}
	if ss.ending.Err() != nil {
		_ = c.Close()
		return nil, errSessionExpired
	}
	ss.dialErr = fmt.Errorf("%s does not answer", addr) // until it does
	ss.wire = newWireConn(c, ss.clock, &ss.zxid, min(max(timeout/3, time.Second), ss.s.opt.dialTimeout))
	return ss.wire, nil
}

// onEvent is called by the goroutines of the library and must not block.
func (ss *session) onEvent(e zk.Event) {
	if e.Type != zk.EventSession {
		ss.onChange(e)
		return
	}
	if e.State == zk.StateExpired {
		ss.end(errSessionExpired)
	}
	ss.mu.Lock()
	lost := false
	switch connected := isReady(ss.connected); {
	case e.State == zk.StateHasSession:
		ss.dialErr = nil
		if !connected {
			close(ss.connected)
		}
	case e.State == zk.StateDisconnected && connected:
		ss.connected, lost = make(chan struct{}), true
	}
	ss.mu.Unlock()
	if lost {
		ss.interrupt()
	}
}

// end ends the session once, and closes it in the background.
func (ss *session) end(why error) {
	ss.mu.Lock()
	if ss.err != nil {
		ss.mu.Unlock()
		return
	}
	ss.err = why
	close(ss.done)
	ss.mu.Unlock()
	ss.cancel() // no more connections from here on
	ss.s.forget(ss)
	ss.interrupt()
	go ss.close()
}

// close closes the connection. It returns when no goroutine of the session runs any more.
func (ss *session) close() {
	defer ss.s.closing.Done()
	cut := time.AfterFunc(700*time.Millisecond, ss.cut) // the server may not answer the close request
	ss.conn.Close()
	cut.Stop()
	ss.cut()
	for range ss.events { // until it is closed
	}
	ss.calls.Wait()
	close(ss.closed)
}

func (ss *session) cut() {
	ss.mu.Lock()
	w := ss.wire
	ss.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}

// startCall counts a goroutine that close waits for. It fails if the session has ended.
func (ss *session) startCall() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.err == nil {
		ss.calls.Add(1)
	}
	return ss.err
}

// endErr returns why the session has ended, nil if it has not.
func (ss *session) endErr() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.err
}

// awaitConnection returns when the session is connected, or why it is not.
func (ss *session) awaitConnection(ctx context.Context) error {
	ss.mu.Lock()
	connected := ss.connected
	ss.mu.Unlock()
	select {
	case <-connected:
		return ss.endErr()
	case <-ss.done:
		return ss.endErr()
	case <-ctx.Done():
		return ss.notConnected(ctx)
	}
}

// notConnected returns the error of a wait for the connection that ctx ended.
func (ss *session) notConnected(ctx context.Context) error {
	ss.mu.Lock()
	err := ss.dialErr
	ss.mu.Unlock()
	if err == nil {
		err = fmt.Errorf("the connection to %s was lost", strings.Join(ss.s.addrs, ","))
	}
	return fmt.Errorf("zookeeper: not connected (%w): %w", err, endOf(ctx))
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
