package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// Statuses of replies.
const (
	abandoned = -1
	held      = 0
	granted   = 1
	again     = 2 // to be sent again with the row locked
	asked     = 5 // held, and the process is asked whether it is alive
	overdue   = 6 // held, and the process of the first waiter has not answered that in time
)

// reply is the reply to a request to acquire.
type reply struct {
	sent       time.Time // before the request was sent
	status     int
	serverTime int64 // µs
	holder     backend.Holder
	ahead      string // hash of the secret of the attempt ahead in the queue, or of the holder
	entered    bool   // this request has entered the queue, or was granted without a place in it
	slots      []int
	next       time.Duration // until a lease of the shared holders may end
	check      time.Duration // until the first waiter is asked again whether it is alive; negative: the holder is exclusive
}

// TryAcquire makes one attempt in one round trip, or two if the lease of a dead holder with
// waiters has to be passed on.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, holding)
	defer a.done()
	r, err := a.ask(ctx, noLimit, false, 0)
	if err == nil && r.status == held {
		err = &backend.LockedError{Holder: r.holder}
	}
	if err != nil {
		a.unregister()
		return nil, err
	}
	return a.grant(r), nil
}

// Acquire waits in the queue of the key until the attempt is granted or ctx ends.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, waiting)
	b.listener.use()
	defer b.listener.unuse()
	defer a.done()
	g, err := a.enqueue(ctx)
	if g == nil && err == nil {
		g, err = a.await(ctx)
	}
	switch {
	case err == nil:
		return g, nil
	case backend.OutcomeUnknown(err): // Abandon follows
		a.settle()
	default:
		a.unregister()
	}
	return nil, err
}

// ask sends one request to acquire, for at most limit from when it may be sent. queue says whether the attempt is to wait
// in the queue; then ask also sets its next poll. If err is nil the status of the reply is granted or held.
func (a *attempt) ask(ctx context.Context, limit time.Duration, queue bool, retryFor time.Duration) (r reply, err error) {
	ctx, leave, err := a.enter(ctx)
	if err != nil {
		return r, backend.NotExecuted(err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a.beginRequest()
	if !a.req.Share.Exclusive() {
		r, err = a.askShare(ctx, queue, retryFor)
	} else {
		r, err = a.askExclusive(ctx, queue, retryFor)
	}
	if err == nil && r.status == asked {
		r.status = held
		_, err = a.answer(ctx)
	}
	if err == nil && r.status == held && queue {
		a.schedule(r) // before another attempt of this process has a reply that makes this one ask
	}
	return r, err
}

func (a *attempt) askExclusive(ctx context.Context, queue bool, retryFor time.Duration) (r reply, err error) {
	b := a.b
	scan := func(row pgx.CollectableRow) (none struct{}, err error) {
		var owner, metadata string
		var left, token int64
		err = row.Scan(&r.status, &r.serverTime, &left, &token, &owner, &metadata, &r.ahead, &r.entered, nil, &a.shares)
		r.holder = holder(owner, metadata, token, left)
		return none, err
	}
	acquire := func(locked bool) call {
		return do(b.sql.acquire, a.key, a.req.Owner, a.processAndHash(), escape(a.req.Metadata), micro(a.req.TTL), queue, locked)
	}
	for calls := []call{acquire(false)}; ; {
		_, r.sent, err = query(ctx, b, retryFor, scan, calls...)
		switch {
		case err != nil:
			a.unanswered = a.unanswered || backend.OutcomeUnknown(err)
			a.passUnknown = a.passUnknown || len(calls) > 1 && backend.OutcomeUnknown(err)
			return r, err
		case r.status == abandoned:
			return r, fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
		case r.status != again:
			return r, nil
		}
		calls = []call{do(b.sql.ensure, a.key), a.pass("pass"), acquire(true)}
	}
}

// pass returns the statement that ends, for the waiters, what kind says.
func (a *attempt) pass(kind string) call {
	calls := a.b.endCalls(ending{key: a.key, owner: a.req.Owner, kind: kind, shares: a.shares})
	return calls[len(calls)-1]
}

// grant returns the grant of a reply, or nil if the attempt must ask again.
func (a *attempt) grant(r reply) *grant {
	// The next waiter of this process polls after next. If the process stops renewing an exclusive grant, it has no
	// waiters any more.
	shared, next := !a.req.Share.Exclusive(), a.req.TTL
	switch {
	case shared && a.peek: // a push was lost, or there are none: the next waiter may have been granted too
		next = 0
	case shared:
		next = min(next, r.next)
	}
	if !a.accept(next, r.entered) {
		return nil
	}
	return &grant{a: a, token: r.holder.Token, until: r.sent.Add(min(r.holder.Left, a.req.TTL)), shared: shared, slots: r.slots}
}

// enqueue asks until the attempt is granted, or in the queue if both results are nil.
// It enters the queue only if this process receives notifications or polls: any other
// process would not notice a pushed grant before the provisional TTL ends. A free key
// takes one round trip in either case.
func (a *attempt) enqueue(ctx context.Context) (*grant, error) {
	b := a.b
	refused := false // the server refuses the listening connection: poll whenever it was tried again
	wasGranted := false
	for {
		up, unavailable := b.listener.status()
		queue := up || unavailable || refused || !b.opt.listen
		r, err := a.ask(ctx, noLimit, queue, max(a.req.TTL, b.opt.timeout))
		switch {
		case err != nil && wasGranted:
			return nil, backend.Uncertain(err) // the key may be held by this attempt
		case err != nil:
			return nil, err
		case r.status == granted:
			if g := a.grant(r); g != nil {
				return g, nil
			}
			wasGranted = true
			continue
		case queue:
			if a.req.OnWait != nil {
				a.req.OnWait(&backend.LockedError{Holder: r.holder})
			}
			return nil, nil
		}
		err = b.listener.wait(ctx)
		if refused = tooManyConnections(err); err != nil && !refused {
			return nil, backend.NotExecuted(err)
		}
	}
}

const noLimit = 1 << 62 // ns

const minBackoff = 20 * time.Millisecond // after a poll that fails

// await waits in the queue for a pushed grant and polls. It tolerates an outage of the
// TTL. Each error is ErrUncertain.
func (a *attempt) await(ctx context.Context) (*grant, error) {
	var failing time.Time // when an outage began; zero while the polls succeed
	backoff := minBackoff
	for {
		a.peek, a.claim = false, false
		select {
		case p := <-a.pushed:
			if g := a.acceptPush(p); g != nil {
				return g, nil
			}
			a.claim = true
		case <-a.timer.C:
			a.peek = true
		case <-ctx.Done():
			return nil, backend.Uncertain(ctx.Err())
		case <-a.b.ctx.Done():
			return nil, backend.Uncertain(backend.ErrClosed)
		}
		g, err := a.poll(ctx)
		switch {
		case g != nil:
			return g, nil
		case err == nil:
			failing, backoff = time.Time{}, minBackoff
			continue
		case failing.IsZero():
			failing = time.Now()
		}
		if end := ended(ctx); end != nil {
			return nil, backend.Uncertain(end)
		}
		if errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrClosed) || time.Since(failing) >= a.req.TTL {
			return nil, backend.Uncertain(err)
		}
		a.timer.Reset(backoff)
		backoff = min(2*backoff, time.Second, max(a.req.TTL/12, minBackoff))
	}
}

// poll asks once and sets the time of the next poll. It returns nil if another attempt
// holds the key.
func (a *attempt) poll(ctx context.Context) (*grant, error) {
	limit := max(a.req.TTL, 100*time.Millisecond) // as long as a waiter tolerates an outage
	begun := time.Now()
	r, err := a.ask(ctx, limit, true, 0)
	switch {
	case err != nil && ended(ctx) == nil && time.Since(begun) >= limit:
		return nil, fmt.Errorf("postgres at %s: no answer within %v", a.b.address(), limit) // not the caller's deadline
	case err != nil:
		return nil, err
	case r.status == held:
		return nil, nil
	}
	g := a.grant(r)
	if g == nil {
		a.timer.Reset(0)
	}
	return g, nil
}

// acceptPush returns the grant of a push. It returns nil if the attempt must ask, which
// returns the same grant with its whole TTL: if the push is not proven, if less than half
// of the provisional TTL is left, if the server clock is not known, if the grant was
// revoked, and if it has slots, which a push does not contain.
func (a *attempt) acceptPush(p push) *grant {
	if !p.proven || a.req.Share.Capacity > 0 {
		return nil
	}
	a.b.mu.Lock()
	until := a.line.clock.until(p)
	a.b.mu.Unlock()
	a.shares = a.shares || p.shares
	shared, next := !a.req.Share.Exclusive(), a.req.TTL
	if shared {
		next = p.ttl // of the others that were granted
	}
	if time.Until(until) < p.ttl/2 || !a.accept(next, false) {
		return nil
	}
	return &grant{a: a, token: p.token, until: until, shared: shared}
}
