package redislock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// Backend is the Redis driver. Make one with New or lock.Open.
type Backend struct {
	rdb     redis.UniversalClient
	cluster *redis.ClusterClient // the same, if it is one
	own     bool                 // opened by us, closed by us
	opt     options
	address string // of this process, for those who tell it something
	caps    backend.Capabilities
	subs    *subscriptions

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // requests and goroutines
	jobs chan func()    // to goroutines that wait for one

	suspecting atomic.Bool // the map of the cluster is being read anew

	mu       sync.Mutex
	closed   bool
	attempts map[string]*attempt // by owner: those that wait, and grants to be told of their loss
	// settled are attempts given up while they waited, each request of which had
	// its answer: Abandon needs no tombstone for them.
	settled map[string]struct{}

	scripts []*script // what is loaded at the server
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Waiter    = (*Backend)(nil)
	_ backend.Inspector = (*Backend)(nil)
	_ backend.Lister    = (*Backend)(nil)
	_ backend.Breaker   = (*Backend)(nil)
	_ backend.Pinger    = (*Backend)(nil)
)

// New makes a backend of the caller's client: a *redis.Client (standalone or
// failover) or a *redis.ClusterClient. It talks to the server, for a bounded
// time, to load its scripts and to look at the server's settings. The client is
// never closed. Its read timeout bounds how long a request that was given up may
// occupy a connection.
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
	if err := o.notForRedlock(); err != nil {
		return nil, err
	}
	b := &Backend{
		rdb: client, opt: o, jobs: make(chan func()), scripts: scripts,
		attempts: map[string]*attempt{}, settled: map[string]struct{}{},
	}
	kind := "p"
	switch c := client.(type) {
	case *redis.ClusterClient:
		b.cluster, kind = c, "s"
	case *redis.Ring:
		return nil, fmt.Errorf("%w client: a redis.Ring has no single owner of a key; want *redis.Client or *redis.ClusterClient", backend.ErrInvalid)
	}
	if rt := readTimeout(client); o.replicas > 0 && rt > 0 && o.replicaTimeout >= rt {
		return nil, backend.Invalid("timeout of waiting for replicas", o.replicaTimeout, fmt.Sprintf("less than the client's read timeout, %v", rt))
	}
	b.address = newAddress(kind)
	b.life, b.end = context.WithCancel(context.Background())
	b.subs = newSubscriptions(b)

	found, err := b.probe(ctx)
	if err == nil && b.cluster == nil {
		// from the start, so that the first wait costs nothing more and a broken
		// lock's holder is told
		err = b.subs.use(b.processChannel(), nil).wait(ctx)
	}
	if err != nil {
		_ = b.Close(ctx) // err is the one that matters
		return nil, certain(err)
	}
	b.caps = b.capabilities(found)
	return b, nil
}

// newAddress is random. The kind says how the process is told: p for PUBLISH, s for
// SPUBLISH.
func newAddress(kind string) string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return kind + hex.EncodeToString(id[:])
}

// certain is err without ErrUncertain: whatever opening did, it locked nothing.
func certain(err error) error {
	var u interface{ Unwrap() []error }
	if errors.As(err, &u) {
		if e := u.Unwrap(); len(e) == 2 && errors.Is(e[0], backend.ErrUncertain) {
			return e[1]
		}
	}
	return err
}

// readTimeout is the client's, zero if it has none.
func readTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return max(c.Options().ReadTimeout, 0)
	case *redis.ClusterClient:
		return max(c.Options().ReadTimeout, 0)
	}
	return 0
}

func (b *Backend) channelPrefix() string {
	if b.opt.prefix == "" {
		return "@"
	}
	return b.opt.prefix + ":@"
}

// processChannel is where this process is told things; not in a cluster.
func (b *Backend) processChannel() string { return b.channelPrefix() + b.address }

// channelOf is where this process is told about a key.
func (b *Backend) channelOf(k keys) string {
	if b.cluster != nil {
		return k.channel(b.address)
	}
	return b.processChannel()
}

func (b *Backend) capabilities(found findings) backend.Capabilities {
	c := backend.Capabilities{
		Name:               "redis",
		Scope:              backend.ScopeNetwork,
		Loss:               backend.LossTTL,
		Order:              backend.FIFO,
		Wake:               backend.WakePush,
		Fencing:            backend.FencingRestart,
		PushesLoss:         b.cluster == nil,
		MinTTL:             100 * time.Millisecond, // a third of it must outlast a round trip and a pause of the process
		MaxTTL:             maxTTL,
		WakesPerRelease:    1,
		HandOffCommands:    2,
		IdleWaiterCommands: 1,
		Caveats: []string{
			"A server that restarts without its append-only file, or a replica that is promoted before it received the last writes, forgets locks: two may then hold one until the first one's lease ends, and only a check of the token at the resource tells them apart.",
			"Tokens rise over a restart and a failover as long as the clock of the server that takes over is not behind the moment of the last grant.",
			"A waiter whose connection breaks loses its place in the queue. One that the server still takes for alive, though its connection is dead, delays the others by up to 3 s when its turn comes.",
			"If the holder and the first waiter die together, the next waiter notices it up to half a lease after the holder's lease has ended, or up to one and a half of its own TTL (at most 45 s) after it last asked, whichever is later.",
			"A step forward of the server's clock ends leases early by as much, and two may then hold one. Let the server's clock be slewed, not stepped.",
			"A client of another kind that holds the key hands it to nobody: its end is noticed within a second, and it does not respect the queue.",
			fmt.Sprintf("A request that the network delivers more than %v after its attempt was abandoned is no longer refused.", tombstoneFor),
		},
	}
	if b.cluster != nil {
		c.Caveats = append(c.Caveats, "While a slot of the cluster migrates, the locks in it are renewed, and may be neither taken nor released nor handed over.")
		c.Caveats = append(c.Caveats, "In a cluster the holder of a broken lock learns of it at its next renewal, unless it waited for the lock. The first wait of a process for a key costs a second request and a subscription, which is kept for 30 s after the last wait.")
	}
	if n := b.opt.replicas; n > 0 {
		c.HandOffCommands = 5 // acquire and renew, each with its WAIT; release
		c.Caveats = append(c.Caveats, fmt.Sprintf("A grant is acknowledged by %d replica(s) before it is reported, but a failover may still promote a replica without it.", n))
	}
	c.Caveats = append(c.Caveats, found.caveats...)
	return c
}

// Capabilities says what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := b.caps
	c.Caveats = slices.Clone(c.Caveats)
	return c
}

// Ping makes one round trip.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.detachedAny(ctx, func() (any, error) {
		c := once{redis.NewCmd(ctx, "ping")}
		return nil, classify(b.rdb.Process(ctx, c))
	})
	return err
}

// Close ends the subscription and waits, until ctx ends, for what is in flight. A
// client that was given to New stays open.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.subs.close()
	if b.own {
		_ = b.rdb.Close() // already closed, or of no consequence
	}
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
