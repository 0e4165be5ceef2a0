package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// session is one session at the service. All who ask for the same TTL share it:
// its timeout is their TTL. It never comes back: when the server has ended it,
// another session takes its place in the backend.
type session struct {
	b     *Backend
	ttl   time.Duration // the key in Backend.sessions; zero for a caller's connection
	conn  *zk.Conn
	id    int64 // of a caller's connection, which may go on with another session
	clock *clock
	zxid  atomic.Int64 // of the last transaction that a reply told of

	over   chan struct{} // closed when the server has ended it, or we have
	ending context.Context
	end    context.CancelFunc // stops dialing
	events <-chan zk.Event    // closed when the library's goroutines have ended
	calls  sync.WaitGroup     // requests whose answers are still to come

	confirms *batch
	keeping  *time.Timer

	mu      sync.Mutex
	err     error         // why it is over
	wire    *wire         // the current connection
	serial  int           // of connections
	up      bool          // connected
	changed chan struct{} // closed when up changes
	failed  error         // the last error of dialing
	users   int           // attempts and grants
	idle    *time.Timer   // ends a session that nobody uses
	pinned  bool          // its connection was given away: never idle
	server  string        // that a caller's connection last used
}

func (b *Backend) newSession(ttl time.Duration) *session {
	s := &session{b: b, ttl: ttl, over: make(chan struct{}), changed: make(chan struct{})}
	s.clock = &clock{timeout: ttl, relay: relayTime(b.limits.least)}
	s.ending, s.end = context.WithCancel(context.Background())
	s.confirms = &batch{s: s}
	return s
}

// connect begins to connect. The session is usable when ready says so.
func (s *session) connect() error {
	ms := (s.ttl + time.Millisecond - 1).Truncate(time.Millisecond)
	conn, events, err := zk.Connect(s.b.addrs, ms,
		zk.WithDialer(s.dial), zk.WithHostProvider(&hosts{s: s, curr: -1}), zk.WithEventCallback(s.event),
		zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return fmt.Errorf("zookeeper: %w", err)
	}
	s.conn, s.events = conn, events
	return nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// hosts names the servers in turn. They are resolved each time they are dialed,
// and the library's pause of a second after each round is left to dial.
type hosts struct {
	s     *session
	addrs []string
	curr  int
}

func (h *hosts) Init(addrs []string) error { h.addrs = addrs; return nil }
func (h *hosts) Len() int                  { return len(h.addrs) }
func (h *hosts) Connected()                {}

// Next reports the end of a round only when the session is over: that is where the
// library looks whether it was closed.
func (h *hosts) Next() (string, bool) {
	h.curr = (h.curr + 1) % len(h.addrs)
	return h.addrs[h.curr], h.s.ending.Err() != nil
}

// dial is called by the library for one connection after the other. Once the
// session is over there is no other: the library would go on, unasked, with a new
// session, and execute in it what was meant for the old one.
//
// Nor is there one when no server has answered for the timeout. No lease of the
// session is trusted any more, but each attempt to resume it that arrives, and
// whose answer is lost, would keep the locks for another timeout.
func (s *session) dial(_, addr string, _ time.Duration) (net.Conn, error) {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if failed != nil {
		// one round of all servers in 200 ms at most, so that an outage is short
		sleep(s.ending, 200*time.Millisecond/time.Duration(len(s.b.addrs)))
	}
	if s.ending.Err() != nil {
		return nil, errSessionOver
	}
	timeout := s.clock.period()
	if last := s.clock.lastAnswer(); !last.IsZero() && time.Since(last) > timeout {
		s.finish(errSilent)
		return nil, errSilent
	}
	ctx, cancel := context.WithTimeout(s.ending, min(max(timeout/3, 250*time.Millisecond), s.b.dialTimeout))
	defer cancel()
	c, err := s.b.dial(ctx, addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = err
		return nil, err
	}
	if s.ending.Err() != nil {
		_ = c.Close()
		return nil, errSessionOver
	}
	s.failed = fmt.Errorf("%s does not answer", addr) // until it does
	s.wire = newWire(c, s.clock, &s.zxid, min(max(timeout/3, time.Second), s.b.dialTimeout))
	return s.wire, nil
}

// event is called by the library's goroutines and must not block.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		s.setUp(true)
	case zk.StateDisconnected:
		s.setUp(false)
	case zk.StateExpired:
		s.finish(errSessionOver)
	}
}

func (s *session) setUp(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if up {
		s.serial++
		s.failed = nil
	}
	if s.up != up {
		s.up = up
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// finish makes the session over, once, and closes what is ours in the background.
func (s *session) finish(why error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = why
	if s.keeping != nil {
		s.keeping.Stop()
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	close(s.over)
	s.mu.Unlock()
	s.end() // no more connections, from this moment
	s.b.forget(s)
	if s.b.own {
		go s.close()
	}
}

// close ends the connection and returns when nothing of the library runs any more.
func (s *session) close() {
	defer s.b.closing.Done()
	if s.conn == nil {
		return
	}
	cut := time.AfterFunc(700*time.Millisecond, s.cut) // a server that does not answer the farewell
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

// begin counts something that close waits for.
func (s *session) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.calls.Add(1)
	}
	return s.err
}

// ended is why the session is over, nil while it is not.
func (s *session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// await returns when the session is connected, or why it is not.
func (s *session) await(ctx context.Context) error {
	if !s.b.own {
		return ctx.Err() // the caller's connection does not tell
	}
	for {
		s.mu.Lock()
		up, changed, failed, err := s.up, s.changed, s.failed, s.err
		s.mu.Unlock()
		switch {
		case err != nil:
			return err
		case up:
			return nil
		}
		select {
		case <-changed:
		case <-s.over:
		case <-ctx.Done():
			if failed == nil {
				failed = errors.New("the connection was lost")
			}
			return fmt.Errorf("zookeeper: not connected to %s (%w): %w", strings.Join(s.b.addrs, ","), failed, ctx.Err())
		}
	}
}

// connection is the number of the current connection: watches are in force from
// the request that set them to the end of its connection, and then again only
// when the library has set them anew. Zero: the connection does not tell.
func (s *session) connection() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serial
}

// call makes a request that ctx can leave behind: the library blocks as long as
// there is no connection, and knows no contexts. pending is closed when a request
// that was left behind has ended.
func call[T any](ctx context.Context, s *session, change bool, f func(c *zk.Conn) (T, error)) (v T, pending <-chan struct{}, err error) {
	if err := ctx.Err(); err != nil {
		return v, nil, notSent{err}
	}
	if err := s.begin(); err != nil {
		return v, nil, err
	}
	type result struct {
		v   T
		err error
	}
	got := make(chan result, 1)
	done := make(chan struct{})
	go func() {
		defer s.calls.Done()
		defer close(done)
		sent := time.Now()
		v, err := f(s.conn)
		if !s.b.own {
			err = s.observe(sent, change, err)
		}
		got <- result{v, err}
	}()
	select {
	case r := <-got:
		if e := s.ended(); e != nil && !answered(r.err) {
			r.err = e
		}
		return r.v, nil, r.err
	case <-ctx.Done():
		return v, done, ctx.Err()
	case <-s.over:
		return v, done, s.ended()
	}
}

// notSent is the error of a request that never left.
type notSent struct{ error }

func (n notSent) Unwrap() error { return n.error }

// observe keeps the clock of a caller's connection, and notices when that goes on
// with another session.
func (s *session) observe(sent time.Time, change bool, err error) error {
	if s.conn.SessionID() != s.id {
		s.finish(errSessionOver)
		return errSessionOver
	}
	server := s.conn.Server()
	s.mu.Lock()
	moved := server != s.server
	s.server = server
	s.mu.Unlock()
	if moved {
		s.clock.moved()
	}
	if answered(err) {
		s.clock.answered(sent, time.Now(), change && err == nil)
	}
	return err
}

// use counts a user of the session.
func (s *session) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false
	}
	s.users++
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.users == 1 && s.b.own {
		s.keepInLocked(s.keepEvery())
	}
	return true
}

const idleFor = time.Minute

func (s *session) unuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users > 0 || s.err != nil || !s.b.own {
		return
	}
	if s.keeping != nil {
		s.keeping.Stop()
	}
	s.idleInLocked()
}

// opened lets a session end that nobody uses: who opened it may have no more time.
func (s *session) opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b.own && s.users == 0 {
		s.idleInLocked()
	}
}

func (s *session) idleInLocked() {
	if s.idle == nil {
		s.idle = time.AfterFunc(idleFor, s.unused)
	} else {
		s.idle.Reset(idleFor)
	}
}

func (s *session) unused() {
	s.mu.Lock()
	unused := s.users == 0 && !s.pinned
	s.mu.Unlock()
	if unused && s.b.retire(s) {
		s.finish(errRetired)
	}
}

// errSilent: the session was given up since no server answered. The service keeps
// what it holds until it has heard nothing of it for the timeout.
var errSilent = errors.New("zookeeper: the session was given up after a timeout without an answer")

// errRetired: the session was closed because nobody used it.
var errRetired = errors.New("zookeeper: the session was closed after a minute without use")

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
