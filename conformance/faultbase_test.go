package conformance_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// wrap is a memlock whose behaviour can be changed piece by piece. A nil field
// leaves a piece as it is.
type wrap struct {
	*memlock.Backend
	wire    *wire // nil is none
	shares  bool  // it grants shares
	caps    func(*backend.Capabilities)
	request func(*backend.Request)
	try     func(ctx context.Context, req backend.Request) (backend.Grant, error)
	acquire func(ctx context.Context, req backend.Request) (backend.Grant, error)
	abandon func(ctx context.Context, req backend.Request) error
	batch   func(ctx context.Context, reqs []backend.Request) []error // nil: each by itself
	breaks  func(ctx context.Context, key, owner string) (*backend.Holder, error)
	inspect func(*backend.Info)
	list    func(ctx context.Context, yield func(backend.Info) bool) error
	close   func()
	fails   func(ctx context.Context, err error) error // what the client makes of an error of an acquire or abandon
	reads   bool                                       // before it acquires it reads, in an exchange of its own
	grant   func(req backend.Request, g backend.Grant) backend.Grant
	watch   func(changed func()) // passes a notification on; makes it a backend.ChangeWatcher
	// together makes it a backend.BatchRenewer, and may change what each of a batch is
	// renewed to, and the answers.
	together func(all []backend.Renewal) (answer func(errs []error) []error)
}

// watching is a wrap whose service notifies clients of changes, as far as watch passes them on.
type watching struct{ *wrap }

func (w watching) WatchChanges(ctx context.Context, key string, changed func()) error {
	for last, first := "", true; ctx.Err() == nil; first = false {
		info, _ := w.Backend.Inspect(ctx, key)
		now := fmt.Sprint(info.Holder != nil, len(info.Waiters))
		if info.Holder != nil {
			now += info.Holder.Owner
		}
		if now != last || first {
			w.watch(changed)
		}
		last = now
		time.Sleep(time.Millisecond) // as often as a service would look
	}
	return ctx.Err()
}

// together is a wrap that renews many at once.
type together struct{ *wrap }

func (w together) RenewBatch(ctx context.Context, all []backend.Renewal) []error {
	answer := w.together(all)
	errs := make([]error, len(all))
	for i, r := range all {
		errs[i] = r.Grant.Renew(ctx, r.TTL)
	}
	if answer != nil {
		errs = answer(errs)
	}
	return errs
}

func (w *wrap) Capabilities() backend.Capabilities {
	c := w.Backend.Capabilities()
	c.Shared, c.Permits = w.shares, w.shares
	if w.caps != nil {
		w.caps(&c)
	}
	return c
}

func (w *wrap) adapt(req backend.Request) backend.Request {
	if w.request != nil {
		w.request(&req)
	}
	return req
}

// ask sends a request to acquire, and wraps what was granted.
func (w *wrap) ask(ctx context.Context, req backend.Request, send func(context.Context, backend.Request) (backend.Grant, error)) (backend.Grant, error) {
	if w.reads {
		if _, err := exchange(ctx, w.wire, func() (backend.Info, error) { return w.Backend.Inspect(ctx, req.Key) }); err != nil {
			return nil, err
		}
	}
	sent := time.Now()
	g, err := exchange(ctx, w.wire, func() (backend.Grant, error) { return send(ctx, req) })
	if err != nil {
		return nil, w.failed(ctx, err)
	}
	if w.wire != nil {
		g = &wired{Grant: g, w: w.wire, until: sent.Add(req.TTL)}
	}
	if w.grant != nil {
		g = w.grant(req, g)
	}
	return g, nil
}

func (w *wrap) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	req = w.adapt(req)
	try := w.Backend.TryAcquire
	if w.try != nil {
		try = w.try
	}
	return w.ask(ctx, req, try)
}

func (w *wrap) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	req = w.adapt(req)
	acquire := w.Backend.Acquire
	if w.acquire != nil {
		acquire = w.acquire
	}
	return w.ask(ctx, req, acquire)
}

func (w *wrap) Abandon(ctx context.Context, req backend.Request) error {
	req = w.adapt(req)
	abandon := w.Backend.Abandon
	if w.abandon != nil {
		abandon = w.abandon
	}
	_, err := exchange(ctx, w.wire, func() (struct{}, error) { return struct{}{}, abandon(ctx, req) })
	return w.failed(ctx, err)
}

func (w *wrap) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	if w.batch != nil {
		return w.batch(ctx, reqs)
	}
	errs := make([]error, len(reqs))
	for i, req := range reqs {
		errs[i] = w.Abandon(ctx, req)
	}
	return errs
}

func (w *wrap) failed(ctx context.Context, err error) error {
	if err == nil || w.fails == nil {
		return err
	}
	return w.fails(ctx, err)
}

func (w *wrap) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	if w.breaks != nil {
		return w.breaks(ctx, key, owner)
	}
	return w.Backend.Break(ctx, key, owner)
}

func (w *wrap) Inspect(ctx context.Context, key string) (backend.Info, error) {
	info, err := w.Backend.Inspect(ctx, key)
	if w.inspect != nil {
		w.inspect(&info)
	}
	return info, err
}

func (w *wrap) List(ctx context.Context, yield func(backend.Info) bool) error {
	if w.list != nil {
		return w.list(ctx, yield)
	}
	return w.Backend.List(ctx, yield)
}

func (w *wrap) Close(ctx context.Context) error {
	if w.close != nil {
		w.close()
	}
	return w.Backend.Close(ctx)
}

// wrapGrant is a grant whose behaviour can be changed piece by piece.
type wrapGrant struct {
	backend.Grant
	token   func() uint64
	until   func() time.Time
	renew   func(ctx context.Context, ttl time.Duration) error
	release func(ctx context.Context) error
}

func (g *wrapGrant) Unwrap() backend.Grant { return g.Grant }

func (g *wrapGrant) Token() uint64 {
	if g.token != nil {
		return g.token()
	}
	return g.Grant.Token()
}

func (g *wrapGrant) Until() time.Time {
	if g.until != nil {
		return g.until()
	}
	return g.Grant.Until()
}

func (g *wrapGrant) Renew(ctx context.Context, ttl time.Duration) error {
	if g.renew != nil {
		return g.renew(ctx, ttl)
	}
	return g.Grant.Renew(ctx, ttl)
}

func (g *wrapGrant) Release(ctx context.Context) error {
	if g.release != nil {
		return g.release(ctx)
	}
	return g.Grant.Release(ctx)
}

// queue is a queue of the wrapper's own: the waiter whose turn it is asks memlock
// again and again. By its fields it is a correct one, or one of many broken ones.
type queue struct {
	poll     time.Duration // between two attempts of the waiter whose turn it is
	slow     time.Duration // the same, once it has waited for slowAfter; 0 is as poll
	lifo     bool          // the last comer is served first
	barge    bool          // TryAcquire does not look at the queue
	ghosts   bool          // a waiter that gives up leaves its place
	herd     bool          // everybody asks at each release
	deadFor  time.Duration // how long the place of a closed client stays when its turn has come; 0: it leaves at once
	commands atomic.Int64  // attempts

	mu      sync.Mutex
	waiting map[string][]*place
}

// slowAfter is less than the wait after which the suite asks for a prompt hand-off.
const slowAfter = 100 * time.Millisecond

type place struct {
	req    backend.Request
	client *wrap
	gone   bool
	dead   bool
	turn   time.Time // when it became the first although it was dead
}

func (q *queue) head(key string) *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting[key]
	if len(w) > 0 && w[0].dead {
		w = q.skipDead(w)
		q.waiting[key] = w
	}
	switch {
	case len(w) == 0:
		return nil
	case q.lifo:
		return w[len(w)-1]
	}
	return w[0]
}

// skipDead removes the first place, which is dead, when it has been the first for deadFor.
func (q *queue) skipDead(w []*place) []*place {
	first := w[0]
	if first.turn.IsZero() {
		first.turn = time.Now()
	}
	if time.Since(first.turn) < q.deadFor {
		return w
	}
	return w[1:]
}

func (q *queue) enter(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[string][]*place{}
	}
	q.waiting[p.req.Key] = append(q.waiting[p.req.Key], p)
}

func (q *queue) leave(key, owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting[key]
	for i, p := range w {
		if p.req.Owner == owner {
			p.gone = true
			q.waiting[key] = append(w[:i:i], w[i+1:]...)
			return
		}
	}
}

// attach gives a wrapped memlock this queue.
func (q *queue) attach(w *wrap) {
	closed := make(chan struct{})
	var once sync.Once
	w.close = func() { once.Do(func() { close(closed) }) }
	try := func(ctx context.Context, req backend.Request) (backend.Grant, error) {
		q.commands.Add(1)
		return w.Backend.TryAcquire(ctx, req)
	}
	w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
		if h := q.head(req.Key); h != nil && !q.barge && ctx.Err() == nil {
			return nil, &backend.LockedError{}
		}
		return try(ctx, req)
	}
	w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
		p := &place{req: req, client: w}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if q.head(req.Key) == nil {
			if g, err := try(ctx, req); err == nil {
				return g, nil
			}
		}
		q.enter(p)
		if req.OnWait != nil {
			req.OnWait(&backend.LockedError{})
		}
		tick := time.NewTicker(q.poll)
		defer tick.Stop()
		for start := time.Now(); ; {
			if q.herd || q.head(req.Key) == p {
				if g, err := try(ctx, req); err == nil {
					q.leave(req.Key, req.Owner)
					return g, nil
				}
			}
			select {
			case <-tick.C:
				if q.slow > 0 && time.Since(start) > slowAfter {
					tick.Reset(q.slow)
				}
			case <-closed:
				if q.deadFor > 0 {
					q.mu.Lock()
					p.dead = true
					q.mu.Unlock()
					return nil, backend.ErrClosed
				}
				q.leave(req.Key, req.Owner)
				return nil, backend.ErrClosed
			case <-ctx.Done():
				if !q.ghosts {
					q.leave(req.Key, req.Owner)
				}
				return nil, ctx.Err()
			}
		}
	}
	if q.herd {
		// Counted here, because how many come to ask before the next holder is there is
		// a matter of timing.
		w.grant = func(req backend.Request, g backend.Grant) backend.Grant {
			return &wrapGrant{Grant: g, release: func(ctx context.Context) error {
				q.mu.Lock()
				q.commands.Add(int64(len(q.waiting[req.Key])))
				q.mu.Unlock()
				return g.Release(ctx)
			}}
		}
	}
	w.inspect = func(info *backend.Info) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, p := range q.waiting[info.Name] {
			info.Waiters = append(info.Waiters, backend.Contender{Owner: p.req.Owner, Metadata: p.req.Metadata})
		}
	}
	w.abandon = func(ctx context.Context, req backend.Request) error {
		if !q.ghosts {
			q.leave(req.Key, req.Owner)
		}
		return w.Backend.Abandon(ctx, req)
	}
}
