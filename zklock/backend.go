package zklock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// Backend is the ZooKeeper driver. New and lock.Open make one.
type Backend struct {
	opt     options
	base    string // the node below which all locks are
	addrs   []string
	auth    []byte // user:password for digest, nil for none
	limits  limits
	closing sync.WaitGroup // sessions that were not closed yet

	life context.Context // ends with Close
	stop context.CancelFunc

	mu       sync.Mutex // guards the fields below; taken before session.mu
	closed   bool
	sessions map[time.Duration]*session // by TTL
	attempts map[string]*attempt        // by owner id: with a grant, or of which something may remain
	held     map[string]bool            // keys that were found held, see TryAcquire
	used     map[string]time.Time       // when the client last used the node of a lock
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Waiter        = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.ChangeWatcher = (*Backend)(nil)
	_ backend.Lister        = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// newBackend returns a backend of these servers, each host or host:port.
func newBackend(o options, servers []string) *Backend {
	b := &Backend{
		opt: o, base: o.root + "/" + o.prefix,
		sessions: map[time.Duration]*session{}, attempts: map[string]*attempt{}, held: map[string]bool{}, used: map[string]time.Time{},
	}
	for _, h := range servers {
		b.addrs = append(b.addrs, backend.HostPort(h, "2181"))
	}
	b.life, b.stop = context.WithCancel(context.Background())
	return b
}

// lockNode returns the path of the node of a key.
func (b *Backend) lockNode(key string) string { return Node(b.opt.root, b.opt.prefix, key) }

// Capabilities returns what the driver guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name: "zookeeper", Scope: backend.ScopeNetwork, Loss: backend.LossSession,
		Order: backend.FIFO, Wake: backend.WakePush, Fencing: backend.FencingFailover, PushesLoss: true,
		Shared: true, Permits: true,
		MinTTL: b.limits.least, MaxTTL: b.limits.most,
		Caveats: []string{
			"The TTL is the timeout of a session that all locks of one TTL share: the service keeps a lock that is not renewed while the holder's process lives, and the end of a session ends all its locks.",
			"The service notices the end of a session up to a tick after its timeout.",
			"Restoring a snapshot sets the fencing tokens back.",
			"If minSessionTimeout of the servers is less than two ticks, two clients can hold.",
			"After 2^31 - 2^20 attempts for one name, the next ones wait until its queue is empty, and are then served in any order.",
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
}

// Client returns the connection whose session holds the locks of a TTL, for requests
// of the caller such as a Multi with [Backend.Guard]. The driver owns it: the caller must
// not close it. It ends with its session, which the driver gives up if no server has
// answered for the TTL.
func (b *Backend) Client(ctx context.Context, ttl time.Duration) (*zk.Conn, error) {
	if l := b.limits; ttl < l.least || ttl > l.most {
		return nil, backend.Invalid("ttl", ttl, fmt.Sprintf("from %v to %v, the server's bounds of session timeouts", l.least, l.most))
	}
	s, err := b.session(ctx, ttl)
	if err != nil {
		return nil, err
	}
	defer s.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned = true
	return s.conn, nil
}

// Close ends the sessions that the driver opened. It returns when they are closed, or an
// error when ctx ends.
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
		s.end(backend.ErrClosed)
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
	s, err := b.anySession(ctx)
	if err != nil {
		return err
	}
	defer s.release()
	_, err = s.exists(ctx, b.base)
	return err
}
