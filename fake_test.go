package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/clienttest"
)

var (
	newClient = clienttest.NewClient
	mustLock  = clienttest.MustLock
	wantErr   = clienttest.WantErr
)

// fake is a backend whose exchanges a test can make fail. Time is that of the bubble.
type fake struct {
	mu    sync.Mutex
	keys  map[string]*entry
	token uint64
	caps  backend.Capabilities

	calls map[string]int // by operation
	times []time.Time    // of renewals, as they were sent
	names []string       // of their keys

	// spoil, if set, returns the error of an operation, and whether the service executed
	// the operation nevertheless.
	spoil func(ctx context.Context, op string, n int) (err error, executed bool)
	// claim, if set, is how long a grant lasts at first, as a pushed grant may.
	claim  time.Duration
	onLost map[string]func(error) // by owner
}

type entry struct {
	owner   string
	token   uint64
	expires time.Time
	meta    string
}

func newFake() *fake {
	return &fake{
		keys:   map[string]*entry{},
		calls:  map[string]int{},
		onLost: map[string]func(error){},
		caps: backend.Capabilities{
			Name: "fake", Scope: backend.ScopeProcess, Loss: backend.LossTTL, Order: backend.Unordered,
			Wake: backend.WakePoll, Fencing: backend.FencingMemory, MinTTL: 50 * time.Millisecond, MaxTTL: time.Hour,
		},
	}
}

// setSpoil sets spoil while requests may be under way.
func (f *fake) setSpoil(spoil func(ctx context.Context, op string, n int) (error, bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spoil = spoil
}

// do runs one operation of the service.
func (f *fake) do(ctx context.Context, op string, execute func() error) error {
	f.mu.Lock()
	f.calls[op]++
	n, spoil := f.calls[op], f.spoil
	f.mu.Unlock()
	var spoilt error
	executed := true
	if spoil != nil {
		spoilt, executed = spoil(ctx, op, n)
	}
	var err error
	if executed {
		f.mu.Lock()
		err = execute()
		f.mu.Unlock()
	}
	if spoilt != nil {
		return spoilt
	}
	return err
}

func (f *fake) live(key string) *entry {
	if e := f.keys[key]; e != nil && (e.expires.IsZero() || time.Now().Before(e.expires)) {
		return e
	}
	return nil
}

func (f *fake) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	var g *fakeGrant
	sent := time.Now()
	err := f.do(ctx, "acquire", func() error {
		if e := f.live(req.Key); e != nil && e.owner != req.Owner {
			return &backend.LockedError{Holder: backend.Holder{
				Contender: backend.Contender{Owner: e.owner, Metadata: e.meta}, Token: e.token, Left: time.Until(e.expires)}}
		}
		ttl := req.TTL
		if f.claim > 0 {
			ttl = f.claim
		}
		f.token++
		e := &entry{owner: req.Owner, token: f.token, expires: time.Now().Add(ttl), meta: req.Metadata}
		f.keys[req.Key] = e
		f.onLost[req.Owner] = req.OnLost
		g = &fakeGrant{f: f, req: req, token: e.token, until: f.until(sent, ttl)}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (f *fake) Abandon(ctx context.Context, req backend.Request) error {
	return f.do(ctx, "abandon", func() error { f.free(req); return nil })
}

// until is Grant.Until for a request that was sent at sent.
func (f *fake) until(sent time.Time, ttl time.Duration) time.Time {
	if f.caps.Loss == backend.LossProcess {
		return time.Time{}
	}
	return sent.Add(ttl)
}

func (f *fake) free(req backend.Request) bool {
	e := f.live(req.Key)
	if e == nil || e.owner != req.Owner {
		return false
	}
	delete(f.keys, req.Key)
	return true
}

func (f *fake) Capabilities() backend.Capabilities { return f.caps }

func (f *fake) Close(ctx context.Context) error {
	return f.do(ctx, "close", func() error { return nil })
}

// holder returns the owner id that holds the key at the service, "" if it is free.
func (f *fake) holder(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.live(key); e != nil {
		return e.owner
	}
	return ""
}

func (f *fake) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// take makes another owner hold the key.
func (f *fake) take(key, owner string, ttl time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token++
	f.keys[key] = &entry{owner: owner, token: f.token, expires: time.Now().Add(ttl), meta: "stranger"}
}

type fakeGrant struct {
	f     *fake
	req   backend.Request
	token uint64
	until time.Time
}

func (g *fakeGrant) Token() uint64 { return g.token }

func (g *fakeGrant) Until() time.Time { return g.until }

func (g *fakeGrant) Renew(ctx context.Context, ttl time.Duration) error {
	g.f.mu.Lock()
	g.f.times, g.f.names = append(g.f.times, time.Now()), append(g.f.names, g.req.Key)
	g.f.mu.Unlock()
	sent := time.Now()
	return g.f.do(ctx, "renew", func() error { return g.extend(sent, ttl) })
}

// extend is what the service does at a renewal.
func (g *fakeGrant) extend(sent time.Time, ttl time.Duration) error {
	e := g.f.live(g.req.Key)
	if e == nil || e.owner != g.req.Owner {
		return backend.ErrLost
	}
	if expires := time.Now().Add(ttl); expires.After(e.expires) { // a renewal never shortens
		e.expires = expires
	}
	g.until = g.f.until(sent, ttl)
	return nil
}

func (g *fakeGrant) Release(ctx context.Context) error {
	return g.f.do(ctx, "release", func() error {
		if !g.f.free(g.req) {
			return backend.ErrLost
		}
		return nil
	})
}

var errNet = errors.New("connection reset")

func wantNot(t *testing.T, what string, err, target error) {
	t.Helper()
	if errors.Is(err, target) {
		t.Fatalf("%s: got error %v, which must not match %q", what, err, target)
	}
}

// spoilt wraps the grants of a fake.
type spoilt struct {
	*fake
	wrap func(backend.Grant) backend.Grant
}

func (s *spoilt) TryAcquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	g, err := s.fake.TryAcquire(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.wrap(g), nil
}

type spoiltGrant struct {
	backend.Grant
	renew   func(ctx context.Context, ttl time.Duration, g backend.Grant) error
	release func(ctx context.Context, g backend.Grant) error
}

func (g *spoiltGrant) Renew(ctx context.Context, ttl time.Duration) error {
	if g.renew != nil {
		return g.renew(ctx, ttl, g.Grant)
	}
	return g.Grant.Renew(ctx, ttl)
}

func (g *spoiltGrant) Release(ctx context.Context) error {
	if g.release != nil {
		return g.release(ctx, g.Grant)
	}
	return g.Grant.Release(ctx)
}
