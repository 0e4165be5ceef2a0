package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// Backend is the etcd driver. Make one with New or lock.Open.
type Backend struct {
	client *clientv3.Client
	own    bool // opened by us, closed by us
	opt    options
	root   string // what all keys begin with
	minTTL time.Duration

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // requests and goroutines

	mu       sync.Mutex
	closed   bool
	sessions map[int64]*session // by the seconds asked for
	buried   map[*session]struct{}
	attempts map[string]*attempt // by owner: whatever may have a key at the server
	views    map[string]*view    // by folder
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Waiter    = (*Backend)(nil)
	_ backend.Inspector = (*Backend)(nil)
	_ backend.Lister    = (*Backend)(nil)
	_ backend.Breaker   = (*Backend)(nil)
	_ backend.Pinger    = (*Backend)(nil)
)

// New makes a backend of the caller's client, which is never closed. It talks to
// the servers, for at most 5 s, to learn the shortest lease they grant. The client
// should have DialKeepAliveTime and DialKeepAliveTimeout set: without them it
// notices a dead connection only when the kernel does.
func New(client *clientv3.Client, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	return open(context.Background(), client, o)
}

func open(ctx context.Context, client *clientv3.Client, o options) (*Backend, error) {
	if client == nil {
		return nil, backend.Invalid("client", "nil", "a *clientv3.Client")
	}
	b := &Backend{
		client: client, opt: o, root: escape(o.prefix) + "/",
		sessions: map[int64]*session{}, buried: map[*session]struct{}{},
		attempts: map[string]*attempt{}, views: map[string]*view{},
	}
	b.life, b.end = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, o.open)
	defer cancel()
	if err := b.probe(ctx); err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

// probe finds out the shortest lease: servers raise what is less than a few
// election timeouts without a word.
func (b *Backend) probe(ctx context.Context) error {
	if _, err := b.client.Get(ctx, b.root, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithCountOnly()); err != nil {
		err = b.failure(context.Background(), err)
		if why := b.disconnected(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return err
	}
	l, err := b.client.Grant(ctx, 1)
	if err != nil {
		return b.failure(context.Background(), err)
	}
	_, _ = b.client.Revoke(ctx, l.ID) // or it ends by itself in a moment
	b.minTTL = time.Duration(l.TTL) * time.Second
	return nil
}

// disconnected says why there is no connection, if that is so: a read is repeated
// until its time is over, and then only tells that.
func (b *Backend) disconnected() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := etcdserverpb.NewLeaseClient(b.client.ActiveConnection()).LeaseKeepAlive(ctx) // which is not
	if broken(err) {
		return err
	}
	return nil
}

// Client returns the client of etcd, for the caller's own requests.
func (b *Backend) Client() *clientv3.Client { return b.client }

// Leases returns the leases under which this backend holds and waits, one for each
// TTL in use. Revoking one is the loss of what is held under it.
func (b *Backend) Leases() []clientv3.LeaseID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []clientv3.LeaseID
	for _, s := range b.sessions {
		if s.made() {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// OwnerCmp returns a condition for a transaction of the caller's own, on Client,
// that holds only while the grant with that owner (lock.Lease.Owner) and token does:
//
//	b.Client().Txn(ctx).If(b.OwnerCmp(l.Name(), l.Owner(), token)).Then(...)
//
// etcd decides it in the same step as the rest of the transaction, so not even a
// holder that was stopped can write too late. For a grant that this backend does
// not know it never holds. With lock.WithLocalHandOff owner and token are those of the
// lease's BackendHold, and what is guarded is the grant, which the same client may have
// passed on.
func (b *Backend) OwnerCmp(name, owner string, token uint64) clientv3.Cmp {
	key := b.folder(name) + owner // which no attempt ever has
	b.mu.Lock()
	if a := b.attempts[owner]; a != nil && a.req.Key == name && a.key != "" {
		key = a.key
	}
	b.mu.Unlock()
	if token == 0 || token > math.MaxInt64 {
		token = math.MaxInt64 // no such revision
	}
	return clientv3.Compare(clientv3.CreateRevision(key), "=", int64(token))
}

var caveats = []string{
	"A lease lasts whole seconds; a TTL is rounded up to them, and the servers raise what is too short for their election timeout.",
	"Tokens are revisions: a cluster restored from a snapshot without raising its revision (etcdutl snapshot restore --bump-revision) issues old ones again, and knows of no lock taken since.",
	"When the cluster elects a leader it extends all leases: the key of a crashed holder may stay for one more TTL.",
	"All locks of one TTL share a lease, and a process keeps it alive with one request in a third of the TTL, whether it holds, waits or neither; a lease that is not used for a minute is given up.",
	"With more than 32 contending processes on one key a hand-off takes two round trips and five requests, three of which make the server read the whole queue.",
	fmt.Sprintf("A request that the network delivers more than %v after its attempt was abandoned is no longer refused.", tombstoneFor),
}

// Capabilities says what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:            "etcd",
		Scope:           backend.ScopeNetwork,
		Loss:            backend.LossSession,
		Order:           backend.FIFO,
		Wake:            backend.WakePush,
		Fencing:         backend.FencingFailover,
		PushesLoss:      true,
		MinTTL:          b.minTTL,
		MaxTTL:          maxTTL,
		WakesPerRelease: 1,
		HandOffCommands: 5, // by predecessor; 2 by view
		Caveats:         slices.Clone(caveats),
	}
}

// Ping makes one round trip, which a majority of the servers must confirm.
func (b *Backend) Ping(ctx context.Context) error {
	return b.do(ctx, func(ctx context.Context) error {
		if _, err := b.client.Get(ctx, b.root, clientv3.WithCountOnly()); err != nil {
			return b.failure(ctx, err)
		}
		return nil
	})
}

// do runs a request that Close waits for. A server that has no leader shall say so
// at once, so that another is asked.
func (b *Backend) do(ctx context.Context, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err // nothing was sent
	}
	if !b.enter() {
		return backend.ErrClosed
	}
	defer b.wg.Done()
	return f(clientv3.WithRequireLeader(ctx))
}

// enter registers work that Close waits for. It is false after Close.
func (b *Backend) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Add(1)
	return true
}

// Close revokes the leases, and whatever was still under them goes with them. A
// client that was given to New stays open.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	var all []*session
	for _, s := range b.sessions {
		all = append(all, s)
	}
	for s := range b.buried {
		all = append(all, s)
	}
	b.mu.Unlock()
	b.end()
	var errs []error
	if !again {
		errs = b.revokeAll(ctx, all)
	}
	if b.own {
		_ = b.client.Close() // reports the end of its own context
	}
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	return errors.Join(errs...)
}

func (b *Backend) revokeAll(ctx context.Context, all []*session) []error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, s := range all {
		if !s.made() {
			continue
		}
		s.stopClock()
		wg.Go(func() {
			if err := s.revoke(ctx); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%w: a lease was not revoked and lasts up to %v: %w", backend.ErrUncertain, s.ttl(), err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errs
}
