package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const (
	pushDelay    = time.Second // how long an event may take
	maxSettled   = 1 << 16
	leaveTimeout = time.Second // of the calls of Pass before Close
	leaveCalls   = 16          // of them at a time
)

// Backend is the waiting for a [Service]. It implements backend.Backend (but for Capabilities), Waiter, BatchRenewer,
// BatchAbandoner and Breaker, and [Events]. A driver embeds it. Its methods may be called concurrently.
type Backend struct {
	svc       Service
	pusher    Pusher // nil if the Service reports no events
	unordered bool   // the Service keeps no queue

	life *call.Life

	mu       sync.Mutex          // guards the fields below, lines, and attempts where they say so
	attempts map[string]*attempt // by owner: those that wait, and those that hold
	settled  map[string]struct{} // owners of ended attempts of which each request had an answer
	lines    map[string]*line    // by key
	passes   map[string]time.Time
}

var (
	_ backend.Waiter         = (*Backend)(nil)
	_ backend.BatchRenewer   = (*Backend)(nil)
	_ backend.BatchAbandoner = (*Backend)(nil)
	_ backend.Breaker        = (*Backend)(nil)
	_ Events                 = (*Backend)(nil)
)

// New returns the Backend of a Service. If the Service is a [Pusher], give it the Backend before that is used: the
// example shows how.
func New(svc Service) *Backend {
	b := &Backend{
		svc: svc, life: call.NewLife(), attempts: map[string]*attempt{}, settled: map[string]struct{}{},
		lines: map[string]*line{}, passes: map[string]time.Time{},
	}
	b.pusher, _ = svc.(Pusher)
	_, b.unordered = svc.(Unordered)
	return b
}

// TryAcquire implements backend.Backend.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := &attempt{b: b, req: req, state: holding}
	b.register(a) // an event about an attempt that is not known would release the grant
	r, err := a.ask(ctx, NoQueue)
	if err == nil && !r.Granted {
		err = &backend.LockedError{Holder: r.Holder}
	}
	if err != nil {
		b.unregister(a)
		return nil, err
	}
	a.hold(r.Token, r.Slots, r.Sent, r.Sent.Add(min(r.Left, req.TTL)))
	return a, nil
}

// Acquire implements backend.Waiter.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if b.pusher != nil {
		defer b.pusher.Use(req.Key)()
	}
	a := &attempt{b: b, req: req}
	b.enterLine(a) // before an event can arrive
	b.register(a)
	if err := a.acquire(ctx); err != nil {
		b.unregister(a) // before it leaves the line, where an event would give it a turn
		b.leaveLine(a)
		if backend.OutcomeUnknown(err) && !a.unanswered.Load() {
			b.settle(req.Owner)
		}
		return nil, err
	}
	b.leaveLine(a)
	return a, nil
}

// Abandon implements backend.Backend.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	return b.AbandonBatch(ctx, []backend.Request{req})[0]
}

// AbandonBatch implements backend.BatchAbandoner.
func (b *Backend) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	ends := make([]End, len(reqs))
	b.mu.Lock()
	for i, req := range reqs {
		_, settled := b.settled[req.Owner]
		ends[i] = End{Request: req, Kind: Abandon, Late: !settled}
		if a := b.attempts[req.Owner]; a != nil {
			a.state = ended
			delete(b.attempts, req.Owner)
		}
	}
	b.mu.Unlock()
	errs := make([]error, len(reqs))
	all := b.finish(ctx, ends...)
	for i, req := range reqs {
		if errs[i] = all[i].Err; errs[i] == nil {
			b.mu.Lock()
			delete(b.settled, req.Owner)
			b.mu.Unlock()
		}
	}
	return errs
}

// RenewBatch implements backend.BatchRenewer.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	errs := make([]error, len(renewals))
	holds, grants := make([]Hold, 0, len(renewals)), make([]*attempt, len(renewals))
	for i, r := range renewals {
		a, ok := r.Grant.(*attempt)
		if !ok || a.b != b {
			errs[i] = fmt.Errorf("%w grant: of another backend", backend.ErrInvalid)
			continue
		}
		grants[i] = a
		holds = append(holds, a.renewal(r.TTL, false))
	}
	if len(holds) == 0 {
		return errs
	}
	all := b.svc.Renew(ctx, holds)
	for i, a := range grants {
		if a != nil {
			errs[i] = a.renewed(all[0], renewals[i].TTL)
			all = all[1:]
		}
	}
	return errs
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	r := b.finish(ctx, End{Request: backend.Request{Key: key, Owner: owner}, Kind: Break})[0]
	switch {
	case r.Err != nil:
		return nil, r.Err
	case !r.Held && r.Holder != nil:
		return nil, &backend.LockedError{Holder: *r.Holder}
	}
	return r.Holder, nil
}

// Close implements backend.Backend. It waits for what still runs in the background, and closes the Service.
func (b *Backend) Close(ctx context.Context) error {
	b.passAll(ctx)
	late := b.life.Close(ctx)
	return errors.Join(b.svc.Close(ctx), late)
}

// finish ends attempts, and looks after those that were granted their keys by that.
func (b *Backend) finish(ctx context.Context, ends ...End) []Ended {
	all := b.svc.End(ctx, ends)
	for i, e := range ends {
		b.PassIn(e.Key, all[i].Pass)
	}
	return all
}

func (b *Backend) register(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts[a.req.Owner] = a
}

// unregister ends an attempt. A grant that is pushed to it later is released.
func (b *Backend) unregister(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.state = ended
	if b.attempts[a.req.Owner] == a {
		delete(b.attempts, a.req.Owner)
	}
}

// settle records that the service will execute no request of an ended attempt later.
func (b *Backend) settle(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.settled) >= maxSettled {
		clear(b.settled) // the service refuses their requests without need
	}
	b.settled[owner] = struct{}{}
}

// background runs f as a task that Close waits for, for ProvisionalTTL at most: what it does not end then, the end of a
// provisional grant does.
func (b *Backend) background(f func(ctx context.Context)) {
	b.life.Go(func() {
		ctx, cancel := context.WithTimeout(b.life.Context(), ProvisionalTTL)
		defer cancel()
		f(ctx)
	})
}

// PassIn makes the Backend call Pass for key in d, when a provisional grant ends that a request of this process has
// made: the attempts that were granted it, and all that wait, may be dead. It does nothing if d is zero, and calls Pass
// at once if d is negative. A later call for the key delays Pass, so that a busy key costs nothing.
func (b *Backend) PassIn(key string, d time.Duration) {
	if d == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Context().Err() != nil {
		return
	}
	_, pending := b.passes[key]
	due := time.Now()
	if d > 0 {
		due = due.Add(d + slack())
	}
	b.passes[key] = due
	switch {
	case d < 0:
		b.life.Go(func() { b.pass(key) })
	case !pending:
		time.AfterFunc(time.Until(due), func() { b.pass(key) })
	}
}

// passAll calls Pass before Close for the keys that this process looks after: the waiters of others get to know when the
// provisional grants end.
func (b *Backend) passAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	b.mu.Lock()
	keys := slices.Collect(maps.Keys(b.passes))
	clear(b.passes)
	b.mu.Unlock()
	var calls sync.WaitGroup
	for some := range slices.Chunk(keys, leaveCalls) {
		for _, key := range some {
			calls.Go(func() {
				for r, err := b.svc.Pass(ctx, key, true); err == nil && r.Pass < 0; {
					r, err = b.svc.Pass(ctx, key, true)
				}
			})
		}
		calls.Wait()
	}
}

// pass calls Pass for key if that is due.
func (b *Backend) pass(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due, pending := b.passes[key]
	if !pending || b.life.Context().Err() != nil {
		return
	}
	if left := time.Until(due); left > 0 {
		time.AfterFunc(left, func() { b.pass(key) })
		return
	}
	delete(b.passes, key)
	b.background(func(ctx context.Context) {
		if r, err := b.svc.Pass(ctx, key, false); err == nil {
			b.PassIn(key, r.Pass)
		}
	})
}
