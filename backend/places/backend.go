package places

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// Config is what a Backend needs to know of its Service.
type Config struct {
	// SessionTTL returns the TTL of the session for a request with that TTL.
	SessionTTL func(ttl time.Duration) time.Duration
	// RequestTimeout is for how long a single request, or the opening of a session, may take.
	RequestTimeout time.Duration
}

// Backend is the waiting for a [Service]. It implements backend.Backend (but for Capabilities), Waiter, BatchAbandoner
// and Breaker, and [Events]. A driver embeds it. Its methods may be called concurrently.
type Backend struct {
	svc    Service
	cfg    Config
	life   *call.Life
	checks checks

	mu       sync.Mutex // guards the fields below, sessions, lines, and attempts where they say so
	sessions map[time.Duration]*session
	attempts map[string]*attempt // by owner: those that may have a place
	lines    map[string]*line    // by key
	entering map[string]int      // by key: how many attempts put a place and read the queue
	numbers  map[string]*numbers // by key
	spent    int                 // the least number that a key without attempts begins with
}

var (
	_ backend.Waiter         = (*Backend)(nil)
	_ backend.BatchAbandoner = (*Backend)(nil)
	_ backend.Breaker        = (*Backend)(nil)
	_ Events                 = (*Backend)(nil)
)

// New returns the Backend of a Service.
func New(svc Service, cfg Config) *Backend {
	return &Backend{
		svc: svc, cfg: cfg, life: call.NewLife(), sessions: map[time.Duration]*session{},
		attempts: map[string]*attempt{}, lines: map[string]*line{},
		entering: map[string]int{}, numbers: map[string]*numbers{},
	}
}

// Life is the life of the Backend, for what its Service does in the background.
func (b *Backend) Life() *call.Life { return b.life }

// TryAcquire implements backend.Backend.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return b.acquire(ctx, req, false)
}

// Acquire implements backend.Waiter.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return b.acquire(ctx, req, true)
}

func (b *Backend) acquire(ctx context.Context, req backend.Request, waits bool) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, backend.NotExecuted(err)
	}
	if !b.life.Enter() {
		return nil, backend.ErrClosed
	}
	defer b.life.Leave()
	a := &attempt{b: b, req: req, ttl: req.TTL}
	if err := a.acquire(ctx, waits); err != nil {
		return nil, a.failed(err)
	}
	if w, ok := b.svc.(HoldWatcher); ok {
		w.Held(a.place)
	}
	return a, nil
}

// Place returns the place of an attempt, if this Backend has put it.
func (b *Backend) Place(owner string) (Place, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.attempts[owner]; a != nil {
		return a.place, a.place.ID != ""
	}
	return Place{}, false
}

// Abandon implements backend.Backend.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	return b.AbandonBatch(ctx, []backend.Request{req})[0]
}

// AbandonBatch implements backend.BatchAbandoner.
func (b *Backend) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	all, known := make([]Removal, len(reqs)), make([]*attempt, len(reqs))
	b.mu.Lock()
	for i, req := range reqs {
		all[i] = Removal{Key: req.Key, Asked: req}
		if a := b.attempts[req.Owner]; a != nil {
			a.state, known[i] = over, a
			all[i] = a.removal()
		}
	}
	b.mu.Unlock()
	errs := make([]error, len(reqs))
	for i, r := range b.remove(ctx, all) {
		if errs[i] = r.Err; r.Err == nil && known[i] != nil {
			known[i].forget(true)
		}
	}
	return errs
}

// remove removes places, and is refused after Close.
func (b *Backend) remove(ctx context.Context, all []Removal) []Removed {
	if b.life.Enter() {
		defer b.life.Leave()
		return b.svc.Remove(ctx, all)
	}
	return slices.Repeat([]Removed{{Err: backend.ErrClosed}}, len(all))
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	for {
		q, err := b.svc.Read(ctx, key, All, 0)
		if err != nil || len(q.Places) == 0 {
			return nil, err
		}
		held := q.Places[:q.Holders()]
		if owner != "" {
			i := slices.IndexFunc(held, func(p Place) bool { return p.Owner == owner })
			if i < 0 {
				return nil, &backend.LockedError{Holder: held[0].Holder()}
			}
			held = held[i : i+1]
		}
		all := make([]Removal, len(held))
		for i, p := range held {
			all[i] = Removal{Place: p, Key: key, Break: true}
		}
		var first *backend.Holder
		for i, r := range b.remove(ctx, all) {
			if r.Existed && first == nil {
				h := held[i].Holder()
				first = &h
			}
			err = errors.Join(err, r.Err)
		}
		if first != nil || err != nil {
			return first, err
		}
	} // all have ended meanwhile: others may hold the key now
}

// Broken implements Events.
func (b *Backend) Broken(owner string) {
	b.mu.Lock()
	a := b.attempts[owner]
	if a != nil {
		a.doubted = a.state == waiting
	}
	b.mu.Unlock()
	if a != nil {
		a.lose(fmt.Errorf("%w: broken by another client", backend.ErrLost), true)
	}
}

// Close implements backend.Backend. It closes the sessions, which ends all places, and waits for what still runs.
func (b *Backend) Close(ctx context.Context) error {
	b.life.Stop()
	b.mu.Lock()
	var open []Session
	for _, s := range b.sessions {
		if s.Session != nil {
			open = append(open, s.Session)
		}
	}
	clear(b.sessions)
	b.mu.Unlock()
	errs := make([]error, len(open)+2)
	var all sync.WaitGroup
	for i, s := range open {
		all.Go(func() { errs[i] = s.Close(ctx) })
	}
	all.Wait()
	errs[len(open)] = b.svc.Close(ctx)
	errs[len(open)+1] = b.life.Close(ctx)
	return errors.Join(errs...)
}
