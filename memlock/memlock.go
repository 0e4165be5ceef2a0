package memlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

func init() { backend.Register("mem", open) }

// Backend is a session in a space. It is safe for concurrent use.
type Backend struct {
	space  *Space
	prefix string
	closed atomic.Bool
}

var _ interface {
	backend.Backend
	backend.Waiter
	backend.BatchAbandoner
	backend.Inspector
	backend.Lister
	backend.Breaker
	backend.Pinger
} = (*Backend)(nil)

// Option configures a Backend.
type Option func(*Backend)

// WithPrefix separates the locks of this Backend from those under other prefixes.
func WithPrefix(prefix string) Option { return func(b *Backend) { b.prefix = prefix } }

// New returns a Backend with its own space.
func New(opts ...Option) *Backend { return NewSpace().Backend(opts...) }

// Backend returns a new session in the space. Close ends its waits. Locks that it
// holds stay held until their TTL has passed, as after a lost connection.
func (s *Space) Backend(opts ...Option) *Backend {
	b := &Backend{space: s}
	for _, o := range opts {
		o(b)
	}
	return b
}

func open(_ context.Context, u *backend.URL) (backend.Backend, error) {
	prefix := u.Params.String("prefix", "")
	if err := u.Params.Err(); err != nil {
		return nil, err
	}
	if u.User != nil {
		return nil, fmt.Errorf("%w URL: want no user and no password; accepted: mem: or mem://name", backend.ErrInvalid)
	}
	if len(u.Hosts) > 1 || (u.Path != "" && u.Path != "/") {
		return nil, backend.Invalid("URL", "mem:"+strings.Join(u.Hosts, ",")+u.Path, "mem: or mem://name, without a path")
	}
	space := NewSpace()
	if len(u.Hosts) == 1 {
		space = Named(u.Hosts[0])
	}
	return space.Backend(WithPrefix(prefix)), nil
}

// Capabilities says what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:       "mem",
		Scope:      backend.ScopeProcess,
		Loss:       backend.LossTTL,
		Order:      backend.FIFO,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingMemory,
		PushesLoss: true,
		Shared:     true,
		Permits:    true,
		MinTTL:     50 * time.Millisecond,
		MaxTTL:     backend.MaxTTL,
		Caveats: []string{
			"Excludes within one process only; tokens restart with the process.",
		},
	}
}

func (b *Backend) check(ctx context.Context) error {
	if b.closed.Load() {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return backend.NotExecuted(err)
	}
	return nil
}

func (b *Backend) checkRequest(ctx context.Context, req *backend.Request) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	if len(req.Key) == 0 || len(req.Key) > backend.MaxName {
		return invalidKey(req.Key)
	}
	if req.TTL <= 0 {
		return backend.Invalid("TTL", req.TTL, "a positive duration")
	}
	return req.Share.Validate()
}

func invalidKey(key string) error {
	return backend.Invalid("lock name", key, fmt.Sprintf("1 to %d bytes", backend.MaxName))
}

// errAbandoned ends a wait whose attempt another goroutine has abandoned.
var errAbandoned = backend.NotExecuted(errors.New("the attempt was abandoned while it waited"))

// TryAcquire implements backend.Backend.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := b.checkRequest(ctx, &req); err != nil {
		return nil, err
	}
	id, now := lockID{b.prefix, req.Key}, time.Now()
	sh := b.space.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g, e := b.try(sh, id, &req, now)
	if g == nil {
		return nil, e.locked(now)
	}
	return g, nil
}

// Acquire implements backend.Waiter. An attempt that fails has left the queue.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := b.checkRequest(ctx, &req); err != nil {
		return nil, err
	}
	id, now := lockID{b.prefix, req.Key}, time.Now()
	sh := b.space.shard(id)
	sh.mu.Lock()
	if b.closed.Load() { // under the mutex: else Close may not find the waiter
		sh.mu.Unlock()
		return nil, backend.ErrClosed
	}
	g, e := b.try(sh, id, &req, now)
	if g != nil {
		sh.mu.Unlock()
		return g, nil
	}
	w := &waiter{ttl: req.TTL, done: make(chan struct{})}
	b.fill(&w.grant, sh, id, &req)
	e.enqueue(w, now)
	var locked *backend.LockedError
	if req.OnWait != nil {
		locked = e.locked(now)
	}
	sh.mu.Unlock()
	if locked != nil {
		req.OnWait(locked)
	}

	select {
	case <-w.done:
	case <-ctx.Done():
		w.giveUp()
		return nil, backend.NotExecuted(ctx.Err())
	}
	if w.err != nil {
		return nil, w.err
	}
	return &w.grant, nil
}

// try grants a lock that is free, that the attempt already holds, or of which its share fits. Else it
// returns no grant, but the entry of the lock. The mutex of the shard is held.
func (b *Backend) try(sh *shard, id lockID, req *backend.Request, now time.Time) (backend.Grant, *entry) {
	e := sh.live(id, now)
	if e == nil {
		g := &grant{}
		b.fill(g, sh, id, req)
		sh.take(g, now, now.Add(req.TTL))
		return g, nil
	}
	if g := e.repeated(req, now); g != nil {
		return g, e
	}
	if g := b.join(e, req, now); g != nil {
		return g, e
	}
	return nil, e
}

// join grants a share of a held lock if it fits and no waiter is queued. Otherwise it returns nil.
func (b *Backend) join(e *entry, req *backend.Request, now time.Time) *grant {
	if e.first != nil || !e.fits(req.Share) {
		return nil
	}
	g := &grant{}
	b.fill(g, e.sh, e.id, req)
	e.grantTo(g, now, now.Add(req.TTL))
	return g
}

func (b *Backend) fill(g *grant, sh *shard, id lockID, req *backend.Request) {
	g.b, g.sh, g.id, g.share, g.onLost = b, sh, id, req.Share, req.OnLost
	g.attempt = backend.Contender{Owner: req.Owner, Metadata: req.Metadata}
}

func (e *entry) holderOf(owner string) *grant {
	for _, g := range e.holders {
		if g.attempt.Owner == owner {
			return g
		}
	}
	return nil
}

// repeated returns the grant of an attempt that already holds the lock, nil if it does
// not. The TTL counts from the last request.
func (e *entry) repeated(req *backend.Request, now time.Time) *grant {
	g := e.holderOf(req.Owner)
	if g == nil {
		return nil
	}
	g.promised = time.Time{}
	if until := now.Add(req.TTL); until.After(g.until) {
		g.until = until
	}
	return g
}

// giveUp leaves the queue, or hands over a grant that came at the same moment.
func (w *waiter) giveUp() {
	g, now := &w.grant, time.Now()
	g.sh.mu.Lock()
	defer g.sh.mu.Unlock()
	if w.queued {
		g.sh.locks[g.id].remove(w, now)
	} else if e := g.held(now); e != nil {
		e.end(g, now)
	}
}

// Abandon implements backend.Backend. Within a process no request is late, so it writes
// no tombstone.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	id, now := lockID{b.prefix, req.Key}, time.Now()
	sh := b.space.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.live(id, now)
	if e == nil {
		return nil
	}
	e.refuse(errAbandoned, now, func(w *waiter) bool { return w.grant.attempt.Owner == req.Owner })
	if g := e.holderOf(req.Owner); g != nil {
		e.end(g, now)
	}
	return nil
}

// AbandonBatch implements backend.BatchAbandoner.
func (b *Backend) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	errs := make([]error, len(reqs))
	for i, req := range reqs {
		errs[i] = b.Abandon(ctx, req)
	}
	return errs
}

// Close ends the waits of this Backend with ErrClosed. Locks that were not released
// stay held until their TTL has passed.
func (b *Backend) Close(context.Context) error {
	if b.closed.Swap(true) {
		return nil
	}
	now, mine := time.Now(), func(w *waiter) bool { return w.grant.b == b }
	for i := range b.space.shards {
		sh := &b.space.shards[i]
		sh.mu.Lock()
		for _, e := range sh.locks {
			e.refuse(backend.ErrClosed, now, mine)
		}
		sh.mu.Unlock()
	}
	return nil
}
