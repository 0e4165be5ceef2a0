package zklock

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// Backend is the ZooKeeper driver. New and lock.Open make one.
type Backend struct {
	*places.Backend
	svc *service
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
	s := &service{
		opt: o, base: o.root + "/" + o.prefix,
		sessions: map[*session]struct{}{}, spare: map[time.Duration]*session{}, entries: map[entryID]*entry{},
		permits: map[string]map[string]places.Place{}, held: map[string]struct{}{}, used: map[string]time.Time{},
	}
	for _, h := range servers {
		s.addrs = append(s.addrs, backend.HostPort(h, "2181"))
	}
	b := &Backend{places.New(s, places.Config{
		SessionTTL:     func(ttl time.Duration) time.Duration { return ttl },
		RequestTimeout: o.openTimeout,
	}), s}
	s.life, s.events = b.Life(), b
	return b
}

// Capabilities returns what the driver guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name: "zookeeper", Scope: backend.ScopeNetwork, Loss: backend.LossSession,
		Order: backend.FIFO, Wake: backend.WakePush, Fencing: backend.FencingFailover, PushesLoss: true,
		Shared: true, Permits: true,
		MinTTL: b.svc.limits.least, MaxTTL: b.svc.limits.most,
		Caveats: []string{
			"All locks of one TTL share a session, whose timeout is the TTL and five eighths of a tick: the service keeps a lock that is not renewed while the holder's process lives, and the end of a session ends all its locks.",
			"The service notices the end of a session up to a tick after its timeout.",
			"A node that another program deletes is noticed at the next renewal; Break, and the end of the session, are pushed.",
			"Restoring a snapshot sets the fencing tokens back.",
			"If minSessionTimeout of the servers is less than two ticks, two clients can hold.",
			"After 2^31 - 2^20 attempts for one name, the next ones wait for up to their TTL until its queue is empty, and are then served in any order.",
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
}

// Client returns the connection whose session holds the locks of a TTL, for requests
// of the caller such as a Multi with [Backend.Guard]. The driver owns it: the caller must
// not close it. It ends with its session, which the driver gives up if no server has
// answered for the TTL.
func (b *Backend) Client(ctx context.Context, ttl time.Duration) (*zk.Conn, error) {
	if l := b.svc.limits; ttl < l.least || ttl > l.most {
		return nil, backend.Invalid("ttl", ttl, fmt.Sprintf("from %v to %v, the server's bounds of session timeouts", l.least, l.most))
	}
	ss, err := b.svc.pin(ttl)
	if err == nil {
		err = ss.awaitOpen(ctx)
	}
	if err != nil {
		return nil, err
	}
	return ss.conn, nil
}

// Guard returns an operation for a Multi of the caller. If the lease, a *lock.Lease of
// this backend, no longer holds its lock, the Multi fails with [zk.ErrNoNode] and none of
// its operations is executed. The service checks that in the same transaction, so the
// resource needs no token. The Multi may use any connection to the same service.
//
// Guard returns ErrLost if the lease has ended. With lock.WithLocalHandOff pass the
// lease's BackendHold: the operation then checks the grant, which the same client may
// have passed on.
func (b *Backend) Guard(lease interface{ Owner() string }) (*zk.CheckVersionRequest, error) {
	p, ok := b.Place(lease.Owner())
	if !ok {
		return nil, fmt.Errorf("%w: the lease has ended, or is of another backend", backend.ErrLost)
	}
	return &zk.CheckVersionRequest{Path: p.ID, Version: -1}, nil
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	return b.svc.do(ctx, func(ss *session) error {
		_, err := ss.get(ctx, b.svc.base)
		return err
	})
}

// Service returns the protocol of the driver without the waiting, for the checks of package placestest.
func (b *Backend) Service() places.Service { return b.svc }
