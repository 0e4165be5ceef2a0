package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// Backend is the Redis driver. New or lock.Open makes one. Its methods may be called
// concurrently.
type Backend struct {
	*queue.Backend
	svc  *service
	caps backend.Capabilities
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Waiter    = (*Backend)(nil)
	_ backend.Inspector = (*Backend)(nil)
	_ backend.Lister    = (*Backend)(nil)
	_ backend.Breaker   = (*Backend)(nil)
	_ backend.Pinger    = (*Backend)(nil)
)

// New returns a backend that uses client: a *redis.Client (standalone or failover) or a
// *redis.ClusterClient. It loads the scripts and checks the settings of the server, for
// 10 s at most. Close does not close client. The read timeout of client limits how long a
// request that was cancelled occupies a connection.
func New(client redis.UniversalClient, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.openTimeout)
	defer cancel()
	return open(ctx, client, o)
}

func open(ctx context.Context, client redis.UniversalClient, o options) (*Backend, error) {
	if client == nil {
		return nil, backend.Invalid("client", "nil", "a go-redis client")
	}
	if _, ok := client.(*redis.Ring); ok {
		return nil, fmt.Errorf("%w client: a redis.Ring has no single owner of a key; want *redis.Client or *redis.ClusterClient", backend.ErrInvalid)
	}
	if rt := readTimeout(client); o.replicas > 0 && rt > 0 && o.replicaTimeout >= rt {
		return nil, backend.Invalid("timeout of waiting for replicas", o.replicaTimeout, fmt.Sprintf("less than the client's read timeout, %v", rt))
	}
	svc := newService(client, o)
	b := &Backend{Backend: queue.New(svc), svc: svc}
	svc.events = b.Backend

	found, err := svc.srv.Probe(ctx, theScripts.all(), o.allowEviction)
	if err == nil && svc.srv.Cluster == nil {
		// now, so that the first wait costs nothing more and holders learn of a break
		err = svc.subs.use(svc.proc.Channel(), "").wait(ctx)
	}
	if err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	b.caps = b.capabilities(found)
	return b, nil
}

// readTimeout returns the read timeout of client, 0 if it has none.
func readTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return max(c.Options().ReadTimeout, 0)
	case *redis.ClusterClient:
		return max(c.Options().ReadTimeout, 0)
	}
	return 0
}

func (b *Backend) capabilities(found server.Findings) backend.Capabilities {
	c := backend.Capabilities{
		Name:       "redis",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossTTL,
		Order:      backend.FIFO,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingRestart,
		PushesLoss: b.svc.srv.Cluster == nil,
		Shared:     true,
		Permits:    true,
		MinTTL:     100 * time.Millisecond, // a third of it must outlast a round trip and a pause of the process
		MaxTTL:     protocol.MaxTTL,
		Lateness:   protocol.TombstoneTTL,
		Caveats: []string{
			"A server that restarts without its append-only file, or a replica that is promoted before it received the last writes, forgets locks: a second holder may be granted the lock until the lease of the first ends, and only a check of the token at the resource stops the first.",
			"Tokens rise over a restart and a failover if the clock of the new master is not behind the time of the last grant.",
			"A waiter whose connection breaks loses its place in the queue. The waiters of a process whose dead connection the server has not detected delay the others by up to 3 s together when the first of them comes first. A process that was stopped for so long loses its places.",
			"If the process of a holder and the first waiter of another process die together, the next waiter detects it up to half a lease after the holder's lease has ended, or up to one and a half of its own TTL (at most 45 s) after its last poll, whichever is later.",
			"Expiry is replicated as an absolute time: if the clock of a promoted replica is ahead of that of the old master, leases end early by the difference, also those that WAIT acknowledged, and a second holder may be granted the lock.",
			"A step forward of the server's clock ends leases early by as much, and a second holder may be granted the lock. Slew the clock of the server and do not step it.",
			"A foreign client that holds the key does not hand it over: waiters detect its release within a second. It does not respect the queue.",
			fmt.Sprintf("A request that the network delivers more than %v after its attempt was abandoned is no longer refused.", protocol.TombstoneTTL),
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if b.svc.srv.Cluster != nil {
		c.Caveats = append(c.Caveats, "While a slot of the cluster migrates, the locks in it are renewed, but cannot be acquired, released or handed over.")
		c.Caveats = append(c.Caveats, "In a cluster the holder of a broken lock learns of it at its next renewal, unless its process waited for the lock. The first wait of a process for a key costs a second request and a subscription, which is kept for 30 s after the last wait.")
	}
	if n := b.svc.opt.replicas; n > 0 {
		c.Caveats = append(c.Caveats, fmt.Sprintf("A grant is acknowledged by %d replica(s) before it is reported, but a failover may still promote a replica without it.", n))
	}
	found.Declare(&c)
	return c
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := b.caps
	c.Caveats = slices.Clone(c.Caveats)
	return c
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error { return b.svc.srv.Ping(ctx) }
