package faults_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// The flaws of a toy.
const (
	letsTwoIn       = "lets two in"
	repeatsToken    = "repeats a token"
	oldToken        = "falls back to an old token"
	trustsTooLong   = "trusts for too long"
	freesAnothers   = "frees another's"
	leavesOrphan    = "leaves an orphan"
	forgetsWaiter   = "forgets a waiter"
	servesAnyWaiter = "serves any waiter"
	forgetsClient   = "forgets a client"
)

// toy is a lock in memory with a queue and at most one flaw. All sessions share it.
type toy struct {
	flaw string

	mu    sync.Mutex
	keys  map[string]*toyKey
	token uint64
}

// forgotten is a client of a toy that gets no answers after a while.
type forgotten struct {
	*toy
	at time.Time
}

var errAway = errors.New("the service is away")

func (f *forgotten) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if time.Now().After(f.at) {
		return nil, errAway
	}
	return f.toy.TryAcquire(ctx, req)
}

func (f *forgotten) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if time.Now().After(f.at) {
		return nil, errAway
	}
	return f.toy.Acquire(ctx, req)
}

type toyKey struct {
	holder *toyGrant
	queue  []chan struct{}
}

type toyGrant struct {
	t          *toy
	key, owner string
	token      uint64
	until      time.Time
	ttl        time.Duration
}

func (t *toy) has(flaw string, oneIn int) bool { return t.flaw == flaw && rand.IntN(oneIn) == 0 }

func (t *toy) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name: "toy", Scope: backend.ScopeProcess, Loss: backend.LossTTL, Order: backend.FIFO, Wake: backend.WakePush,
		Fencing: backend.FencingMemory, MinTTL: time.Millisecond,
	}
}

func (t *toy) Close(context.Context) error { return nil }

// takeLocked grants a free key if its queue begins with turn.
func (t *toy) takeLocked(req backend.Request, turn chan struct{}) *toyGrant {
	k := t.keys[req.Key]
	if k == nil {
		k = &toyKey{}
		t.keys[req.Key] = k
	}
	held := k.holder != nil && time.Now().Before(k.holder.until) && !t.has(letsTwoIn, 5)
	if held || len(k.queue) > 0 && k.queue[0] != turn {
		return nil
	}
	t.token++
	g := &toyGrant{t: t, key: req.Key, owner: req.Owner, token: t.token, until: time.Now().Add(req.TTL), ttl: req.TTL}
	if t.flaw == repeatsToken {
		g.token = g.token / 8 * 8
	}
	if t.has(oldToken, 50) {
		g.token = 1
	}
	if t.has(leavesOrphan, 200) {
		g.until = g.until.Add(time.Hour)
	}
	k.holder, k.queue = g, slices.DeleteFunc(k.queue, func(c chan struct{}) bool { return c == turn })
	return g
}

// network delays requests. Without it clients would lock and unlock as fast as they can, and
// histories would be too long.
func network() { time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) }

func (t *toy) TryAcquire(_ context.Context, req backend.Request) (backend.Grant, error) {
	network()
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.takeLocked(req, nil); g != nil {
		return g, nil
	}
	return nil, &backend.LockedError{}
}

func (t *toy) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	network()
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.takeLocked(req, nil); g != nil {
		return g, nil
	}
	k, turn := t.keys[req.Key], make(chan struct{}, 1)
	if t.has(forgetsWaiter, 3) {
		turn = nil
	} else if i := len(k.queue); t.has(servesAnyWaiter, 2) {
		k.queue = slices.Insert(k.queue, rand.IntN(i+1), turn)
	} else {
		k.queue = append(k.queue, turn)
	}
	req.OnWait(&backend.LockedError{})
	for {
		expiry := time.Hour
		if turn != nil && k.holder != nil {
			expiry = max(time.Until(k.holder.until), time.Millisecond)
		}
		t.mu.Unlock()
		select {
		case <-turn:
		case <-time.After(expiry):
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			k.queue = slices.DeleteFunc(k.queue, func(c chan struct{}) bool { return c == turn })
			k.wakeLocked()
			return nil, ctx.Err()
		}
		if turn == nil {
			continue
		}
		if g := t.takeLocked(req, turn); g != nil {
			return g, nil
		}
	}
}

// wakeLocked wakes the first waiter.
func (k *toyKey) wakeLocked() {
	if len(k.queue) > 0 {
		select {
		case k.queue[0] <- struct{}{}:
		default:
		}
	}
}

func (t *toy) free(key, owner string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.keys[key]
	if k == nil || k.holder == nil || k.holder.owner != owner && t.flaw != freesAnothers {
		return backend.ErrLost
	}
	if time.Until(k.holder.until) > time.Minute {
		return nil // what stays
	}
	k.holder = nil
	k.wakeLocked()
	return nil
}

func (t *toy) Abandon(_ context.Context, req backend.Request) error {
	_ = t.free(req.Key, req.Owner)
	return nil
}

func (g *toyGrant) Token() uint64 { return g.token }

func (g *toyGrant) Until() time.Time {
	if g.t.flaw == trustsTooLong {
		return g.until.Add(g.ttl / 2)
	}
	return g.until
}

func (g *toyGrant) Renew(_ context.Context, ttl time.Duration) error {
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	switch k := g.t.keys[g.key]; {
	case g.t.flaw == trustsTooLong:
		return errAway
	case k.holder != g || time.Now().After(g.until):
		return backend.ErrLost
	}
	if until := time.Now().Add(ttl); until.After(g.until) {
		g.until = until
	}
	return nil
}

func (g *toyGrant) Release(ctx context.Context) error {
	network()
	err := g.t.free(g.key, g.owner)
	if g.t.flaw == freesAnothers { // the same request once more, as a client library sends it that got no reply
		_ = sleep(ctx, time.Duration(rand.IntN(3))*time.Millisecond)
		_ = g.t.free(g.key, g.owner)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
