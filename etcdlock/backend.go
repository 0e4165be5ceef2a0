package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// Backend is the etcd driver. Make one with New or lock.Open.
type Backend struct {
	client     *clientv3.Client
	ownsClient bool // Close closes it
	conns      *connections
	opt        options
	root       string // prefix of all keys
	minTTL     time.Duration

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // requests and goroutines

	opening, openingOther chan struct{} // capacity 1: a stream is being opened
	counting              chan struct{} // capacity 1: an attempt counts the processes in a queue
	acquiring             chan struct{} // requests to acquire without a reply
	keepWatchStream       sync.Once

	mu       sync.Mutex // guards the fields below
	closed   bool
	sessions map[int64]*session    // by the TTL asked for, in seconds
	expired  map[*session]struct{} // sessions that the local clock ended, until their leases are revoked
	attempts map[string]*attempt   // by owner id: those that may have a key at the servers
	views    map[string]*view      // by folder
	stream   *leaseStream          // the last that answered, or nil; it may have failed
}

// maxAcquiring is for how many requests to acquire a backend awaits replies. The servers refuse
// requests while 5,000 wait to be applied. In an outage all that were sent leave tombstones.
const maxAcquiring = 256

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Waiter        = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.ChangeWatcher = (*Backend)(nil)
	_ backend.Lister        = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// Client returns the client of etcd, for requests of the caller.
func (b *Backend) Client() *clientv3.Client { return b.client }

// Leases returns the leases of this backend, one for each TTL in use. If one is
// revoked, all grants under it are lost.
func (b *Backend) Leases() []clientv3.LeaseID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []clientv3.LeaseID
	for _, s := range b.sessions {
		if s.id != 0 {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// OwnerCmp returns a condition for a transaction of the caller on Client. It is true
// only while the grant with that owner (lock.Lease.Owner) and token holds the lock, or its
// share of it:
//
//	b.Client().Txn(ctx).If(b.OwnerCmp(l.Name(), l.Owner(), token)).Then(...)
//
// etcd checks it together with the rest of the transaction, so even a holder that was
// stopped cannot write too late. It is false for a grant that this backend does not
// know. With lock.WithLocalHandOff use the owner and the token of Lease.BackendHold: the
// condition guards the grant, which the client may have passed on to another lease.
func (b *Backend) OwnerCmp(name, owner string, token uint64) clientv3.Cmp {
	key := b.folder(name) + owner // no attempt has this key
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

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:       "etcd",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossSession,
		Order:      backend.FIFO,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingFailover,
		PushesLoss: true,
		Shared:     true,
		Permits:    true,
		MinTTL:     b.minTTL,
		MaxTTL:     maxTTL,
		Caveats: []string{
			"A lease lasts whole seconds: a TTL is rounded up, and the servers raise a TTL that is too short for their election timeout.",
			"Lease.Extend beyond the TTL of the lock is refused.",
			"Tokens are revisions: a cluster restored from a snapshot without raising its revision (etcdutl snapshot restore --bump-revision) issues old ones again, and does not know later locks.",
			"When the cluster elects a leader it extends all leases: the key of a crashed holder may stay for one more TTL.",
			"All locks of one TTL share a lease. A process sends one keep-alive every third of the TTL, and revokes a lease that it has not used for a minute.",
			"With more than 32 contending processes on one key a hand-off takes two round trips and five requests, three of which make the server read the whole queue.",
			"Shared requests that wait follow the whole queue, whatever the number of processes: each of them receives all events of the lock.",
			fmt.Sprintf("A request that the network delivers more than %v after its attempt was abandoned is no longer refused.", tombstoneTTL),
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
}

// Ping makes one round trip, which a majority of the servers must confirm.
func (b *Backend) Ping(ctx context.Context) error {
	return b.do(ctx, func(ctx context.Context) error {
		if _, err := b.client.Get(ctx, b.root, clientv3.WithCountOnly()); err != nil {
			return b.readError(ctx, err)
		}
		return nil
	})
}

// do calls f, and Close waits for it. A server without a leader refuses the requests of
// f at once, so that the client uses another.
func (b *Backend) do(ctx context.Context, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return backend.NotExecuted(err)
	}
	if !b.enter() {
		return backend.ErrClosed
	}
	defer b.wg.Done()
	return f(clientv3.WithRequireLeader(ctx))
}

// enter registers work that Close waits for. It returns false after Close.
func (b *Backend) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Add(1)
	return true
}

// retryInBackground calls f in a goroutine, as retry does, until the backend is closed.
func (b *Backend) retryInBackground(f func(context.Context) error) {
	if !b.enter() {
		return // Close revokes the leases
	}
	go func() {
		defer b.wg.Done()
		retry(b.ctx, b.opt.openTimeout, f)
	}()
}

// retry calls f until it returns nil or ctx ends. limit bounds each call. The pause
// between calls grows from 50 ms to 1 s.
func retry(ctx context.Context, limit time.Duration, f func(context.Context) error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		call, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
		err := f(call)
		cancel()
		if err == nil || !pause(ctx, wait) {
			return
		}
	}
}

// Close revokes the leases, which deletes all keys under them. A client that was given
// to New stays open.
func (b *Backend) Close(ctx context.Context) error {
	var sessions []*session
	b.mu.Lock()
	if !b.closed {
		sessions = slices.AppendSeq(slices.Collect(maps.Values(b.sessions)), maps.Keys(b.expired))
		sessions = slices.DeleteFunc(sessions, func(s *session) bool { return s.id == 0 })
	}
	b.closed = true
	b.mu.Unlock()
	b.stop()
	errs := make([]error, len(sessions)+1)
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() {
			if err := s.revoke(ctx); err != nil {
				errs[i] = fmt.Errorf("%w: a lease was not revoked and lasts up to %v: %w", backend.ErrUncertain, s.ttl(), err)
			}
		})
	}
	wg.Wait()
	if b.ownsClient {
		_ = b.client.Close() // returns the end of its own context
	}
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		errs[len(sessions)] = ctx.Err()
	}
	return errors.Join(errs...)
}
