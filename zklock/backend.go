package zklock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// Backend is the ZooKeeper driver. Make one with New or lock.Open.
type Backend struct {
	opt         options
	base        string // the node under which all locks stand
	own         bool   // sessions are opened by us, closed by us
	addrs       []string
	dial        dialer
	dialTimeout time.Duration
	auth        []byte // user:password for digest, nil for none
	limits      limits
	caps        backend.Capabilities
	closing     sync.WaitGroup // of sessions

	life context.Context // ends with Close
	stop context.CancelFunc

	mu       sync.Mutex
	closed   bool
	sessions map[time.Duration]*session
	opening  map[time.Duration]*opening
	attempts map[string]*attempt // by owner: of which something may remain, and grants
	held     map[string]struct{} // names that were found held: TryAcquire looks before it leaps

	given *zk.Conn // the caller's, if not own
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Waiter    = (*Backend)(nil)
	_ backend.Inspector = (*Backend)(nil)
	_ backend.Lister    = (*Backend)(nil)
	_ backend.Breaker   = (*Backend)(nil)
	_ backend.Pinger    = (*Backend)(nil)
)

func newBackend(o options) *Backend {
	b := &Backend{
		opt: o, base: o.root + "/" + o.prefix,
		sessions: map[time.Duration]*session{}, opening: map[time.Duration]*opening{},
		attempts: map[string]*attempt{}, held: map[string]struct{}{},
	}
	b.life, b.stop = context.WithCancel(context.Background())
	return b
}

func (b *Backend) node(name string) string { return Node(b.opt.root, b.opt.prefix, name) }

// Capabilities says what is guaranteed.
func (b *Backend) Capabilities() backend.Capabilities {
	c := b.caps
	c.Caveats = append([]string(nil), c.Caveats...)
	return c
}

func (b *Backend) declare() {
	b.caps = backend.Capabilities{
		Name: "zookeeper", Scope: backend.ScopeNetwork, Loss: backend.LossSession,
		Order: backend.FIFO, Wake: backend.WakePush, Fencing: backend.FencingFailover, PushesLoss: true,
		MinTTL: b.limits.least, MaxTTL: b.limits.most,
		WakesPerRelease: 2, HandOffCommands: 7, IdleWaiterCommands: 4,
		Caveats: []string{
			"The TTL is the timeout of a session that all locks of one TTL share: a lock whose holder's process lives and does not renew is kept, and a session that ends takes all its locks with it.",
			"The end of a session is noticed by the service up to a tick after its timeout.",
			"Restoring a snapshot sets the fencing tokens back.",
		},
	}
	if !b.own {
		b.caps.MinTTL = 0
		b.caps.Caveats = append(b.caps.Caveats, fmt.Sprintf(
			"The session is that of the caller's connection: a TTL below its timeout of %v is the holder's trust, while the service keeps the lock of a crashed holder for the whole timeout.", b.limits.most))
	}
}

// opening is a session that somebody opens. All who need it share the outcome.
type opening struct {
	done chan struct{}
	err  error // before done is closed; nil too if only the opener had no more time
}

// session returns the session for a TTL with a use of it counted, connected if it
// is new.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	if !b.own {
		ttl = 0
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, backend.ErrClosed
		}
		if s := b.sessions[ttl]; s != nil && s.use() {
			b.mu.Unlock()
			return s, nil
		}
		o := b.opening[ttl]
		if o == nil {
			o = &opening{done: make(chan struct{})}
			b.opening[ttl] = o
			b.mu.Unlock()
			err := b.openSession(ctx, ttl)
			if ctx.Err() == nil {
				o.err = err
			}
			b.mu.Lock()
			delete(b.opening, ttl)
			b.mu.Unlock()
			close(o.done)
			if err != nil {
				return nil, err
			}
			continue
		}
		b.mu.Unlock()
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
		}
	}
}

// openSession makes the session for a TTL and leaves it in the map.
func (b *Backend) openSession(ctx context.Context, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, b.opt.wait)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return backend.ErrClosed
	}
	s := b.newSession(ttl)
	if b.own {
		b.closing.Add(1) // until s.close
	}
	b.mu.Unlock()
	var err error
	if b.own {
		if err = s.connect(); err == nil {
			err = s.greet(ctx)
		}
	} else {
		err = s.adopt(ctx)
	}
	if err == nil {
		b.mu.Lock()
		if b.closed {
			err = backend.ErrClosed
		} else if err = s.ended(); err == nil {
			b.sessions[ttl] = s
			s.opened()
		}
		b.mu.Unlock()
	}
	if err != nil {
		s.finish(err)
		if b.life.Err() != nil {
			return backend.ErrClosed
		}
		if ctx.Err() != nil {
			err = notOpened{err}
		}
	}
	return err
}

// notOpened is the error of a session that was tried to open for all the time there
// is: to repeat that at once is of no use.
type notOpened struct{ error }

func (n notOpened) Unwrap() error { return n.error }

// greet waits for the connection and says who we are.
func (s *session) greet(ctx context.Context) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	if s.b.auth == nil {
		return nil
	}
	_, _, err := call(ctx, s, false, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth("digest", s.b.auth)
	})
	if err != nil {
		return fmt.Errorf("zookeeper: authentication: %w", err)
	}
	return nil
}

// adopt begins with the session that a caller's connection has now.
func (s *session) adopt(ctx context.Context) error {
	s.conn, s.clock.timeout = s.b.given, s.b.limits.most
	for s.conn.State() != zk.StateHasSession || s.conn.SessionID() == 0 {
		sleep(ctx, 10*time.Millisecond) // the library tells it to one listener only, the caller
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("zookeeper: the connection given to New is %v: %w", s.conn.State(), err)
		}
	}
	s.id, s.server = s.conn.SessionID(), s.conn.Server()
	if err := s.b.createBase(ctx, s); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepInLocked(s.keepEvery())
	return nil
}

// forget takes a session that is over out of the map.
func (b *Backend) forget(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.ttl] == s {
		delete(b.sessions, s.ttl)
	}
}

// retire takes a session out of the map if it is still unused.
func (b *Backend) retire(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || b.sessions[s.ttl] != s {
		return false
	}
	delete(b.sessions, s.ttl)
	return true
}

// any returns a session for a request that concerns no attempt.
func (b *Backend) any(ctx context.Context) (*session, error) {
	b.mu.Lock()
	for _, s := range b.sessions {
		if s.isUp() && s.use() {
			b.mu.Unlock()
			return s, nil
		}
	}
	b.mu.Unlock()
	return b.session(ctx, min(max(30*time.Second, b.limits.least), b.limits.most))
}

func (s *session) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up || !s.b.own
}

// Client returns the connection whose session holds the locks of a TTL, for the
// caller's own requests, such as a Multi with [Backend.Guard]. It stays the
// driver's: it must not be closed, and ends with its session, which is given up when
// no server has answered for the TTL.
func (b *Backend) Client(ctx context.Context, ttl time.Duration) (*zk.Conn, error) {
	if ttl < b.caps.MinTTL || ttl > b.caps.MaxTTL {
		return nil, backend.Invalid("ttl", ttl, fmt.Sprintf("from %v to %v, the server's bounds of session timeouts", b.caps.MinTTL, b.caps.MaxTTL))
	}
	s, err := b.session(ctx, ttl)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.pinned = true
	s.mu.Unlock()
	s.unuse()
	return s.conn, nil
}

// Close ends the sessions that the driver has opened.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	var open []*session
	for _, s := range b.sessions {
		open = append(open, s)
	}
	b.mu.Unlock()
	b.stop()
	for _, s := range open {
		s.finish(backend.ErrClosed)
	}
	done := make(chan struct{})
	go func() {
		b.closing.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zookeeper: closing sessions: %w", ctx.Err())
	}
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	s, err := b.any(ctx)
	if err != nil {
		return err
	}
	defer s.unuse()
	_, _, err = call(ctx, s, false, func(c *zk.Conn) (bool, error) {
		ok, _, err := c.Exists(b.base)
		return ok, err
	})
	return explain(err, b.base)
}
