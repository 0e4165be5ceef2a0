package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// attempt is one call of TryAcquire or Acquire.
type attempt struct {
	b          *Backend
	req        backend.Request
	line       *line
	unanswered bool // a request had no answer: the server may execute it later

	// For Acquire:
	queued      bool      // the attempt has been in the queue
	failedSince time.Time // first failure since the last answer
	polls       pollSchedule
	news        chan news // capacity 1

	// Written before the attempt enters its line, and not while it is there:
	place int64     // in the queue of the server
	since time.Time // when it last found itself in the queue
}

// TryAcquire makes one attempt in one round trip, or in three if the lease of a dead holder with
// waiters has to be passed on. It does not enter the queue.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	a := b.newAttempt(req)
	defer a.done()
	s, err := a.send(ctx, false)
	if err == nil && req.Share.Exclusive() && (s.unread() || !s.held() && s.waiters) {
		s, err = b.pass(ctx, values{req: req}, s.shares)
	}
	if err == nil && req.Share.Exclusive() && !s.held() {
		s, err = a.sendEnter(ctx, false)
	}
	switch {
	case err != nil:
		return nil, err
	case !s.heldBy(req.Owner):
		return nil, &backend.LockedError{Holder: s.holder()}
	}
	return a.grant(s), nil
}

// send sends one request to acquire. With join the attempt enters the queue. A free key takes one
// round trip. The driver enters the queue at once if others of this process wait for the key.
func (a *attempt) send(ctx context.Context, join bool) (rowState, error) {
	if a.req.Share.Exclusive() && (!join || !a.queued && !a.unanswered && !a.line.contended()) {
		b, v := a.b, values{req: a.req}
		s, err := a.request(ctx, func(getName bool) packet { return packet{b.sql(ask, v), b.read(v, "0", "0", getName)} })
		if err != nil || !join || s.heldBy(a.req.Owner) {
			return s, err
		}
	}
	return a.sendEnter(ctx, join)
}

// sendEnter sends a request in a transaction, which decides whether the attempt is in the queue or
// was abandoned.
func (a *attempt) sendEnter(ctx context.Context, join bool) (rowState, error) {
	v, scan := values{req: a.req, place: a.place}, a.unanswered
	if !a.req.Share.Exclusive() {
		return a.sendShare(ctx, v, join, scan)
	}
	enter := func(getName bool) packet { return a.b.enterPacket(v, join, scan, getName) }
	s, err := a.request(ctx, enter)
	if err == nil && s.missing() {
		if _, err = a.b.exec(ctx, a.b.sql(ensure, v)); err == nil {
			s, err = a.request(ctx, enter)
		}
	}
	if err == nil && s.unread() {
		v.place = s.place
		if holders, err := a.b.overPool(ctx, packet{a.b.readShares(v, readAfter{place: "{place}"})}); err == nil {
			return holders, nil
		}
	}
	return s, err
}

// sendShare is sendEnter for a share. If it is refused because of a holder that has expired, or of a first
// waiter whose deadline has passed, sendShare ends that and sends the request again.
func (a *attempt) sendShare(ctx context.Context, v values, join, scan bool) (rowState, error) {
	send := func() (rowState, error) {
		return a.request(ctx, func(getName bool) packet { return a.b.enterSharesPacket(v, join, scan, getName) })
	}
	s, err := send()
	if err == nil {
		s = a.startDeadline(s)
	}
	refused := err != nil && s.present.Weight > 0 || err == nil && !join && !s.heldBy(a.req.Owner)
	if !refused || s.held() && (join || !s.overdue()) {
		return s, err
	}
	if _, failed := a.b.pass(ctx, v, true); failed != nil {
		return s, err
	}
	return send()
}

func (a *attempt) request(ctx context.Context, build func(getName bool) packet) (s rowState, err error) {
	if a.b.denied != nil {
		return s, backend.NotExecuted(a.b.denied)
	}
	leave, err := a.enter(ctx)
	if err != nil {
		return s, err
	}
	defer leave()
	s, err = a.b.request(ctx, a.req.Owner, build)
	switch {
	case err != nil:
		a.unanswered = a.unanswered || errors.Is(err, backend.ErrUncertain)
	case s.abandoned:
		err = fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	case s.present.Weight > 0:
		err = backend.NotExecuted(backend.CapacityError(a.req.Share, s.present))
	}
	if s.more {
		_, _ = a.b.pass(ctx, values{req: backend.Request{Key: a.req.Key}}, true)
	}
	return s.forOwner(a.req.Owner), err
}

func (a *attempt) grant(s rowState) *grant {
	g := &grant{b: a.b, req: a.req, token: s.token, slots: s.slots, unanswered: a.unanswered, contended: a.queued || s.waiters, shares: s.shares, until: s.sent.Add(min(s.left(), a.req.TTL))}
	if !s.share.Exclusive() {
		g.mode = shared
	}
	return g
}

// Acquire acquires the key. It waits in the queue until the key is granted or ctx ends.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	a := b.newAttempt(req)
	defer a.done()
	a.polls.max = min(250*time.Millisecond, max(req.TTL/8, minPoll))
	g, err := a.wait(ctx)
	if err != nil {
		if errors.Is(err, backend.ErrUncertain) {
			b.remember(req.Owner, leftover{a.place, !a.unanswered})
		}
		return nil, err
	}
	return g, nil
}

// wait asks, and waits in the queue, in turn, until it returns a grant or an error.
func (a *attempt) wait(ctx context.Context) (*grant, error) {
	for {
		s, err := a.ask(ctx)
		switch {
		case err != nil:
			if err = a.retry(ctx, err); err != nil {
				return nil, err
			}
			continue
		case !s.heldBy(a.req.Owner):
			var granted *rowState
			if granted, err = a.await(ctx, s); err != nil {
				return nil, err
			}
			if granted == nil {
				continue
			}
			s = *granted
		}
		a.failedSince = time.Time{}
		if g := a.accept(ctx, s); g != nil {
			return g, nil
		}
		if err := a.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// ask sends a request. An attempt that was in the queue waits at most its TTL for the answer.
func (a *attempt) ask(ctx context.Context) (rowState, error) {
	if !a.queued {
		return a.send(ctx, true)
	}
	limit := max(a.req.TTL, 100*time.Millisecond)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := a.send(bounded, true)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = backend.Uncertain(fmt.Errorf("mysql%s: no answer within %v", a.b.address, limit)) // not the deadline of the caller
		a.unanswered = true
	}
	return s, err
}

// retry pauses after a failure. It returns the error of the attempt: that of ctx, a permanent one,
// or err when the service has failed for the TTL. Before the attempt is in the queue only a rolled
// back statement is sent again.
func (a *attempt) retry(ctx context.Context, err error) error {
	if a.failedSince.IsZero() {
		a.failedSince = time.Now()
	}
	final := time.Since(a.failedSince) >= a.req.TTL || errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrClosed) ||
		!a.queued && !rolledBack(err)
	switch {
	case ctx.Err() != nil:
		return a.interrupted(ctx.Err())
	case final && !a.queued && !a.unanswered:
		return err
	case final:
		return stillUncertain(backend.ErrUncertain, err)
	}
	return a.pause(ctx)
}

func (a *attempt) pause(ctx context.Context) error {
	select {
	case <-time.After(a.polls.backoff()):
		return nil
	case <-ctx.Done():
		return a.interrupted(ctx.Err())
	case <-a.b.life.Done():
		return a.interrupted(backend.ErrClosed)
	}
}

// await waits in the queue of s. It returns nil if the attempt is not there any more.
func (a *attempt) await(ctx context.Context, s rowState) (*rowState, error) {
	if a.place = s.place; a.place == 0 { // for example, the row was deleted in between
		return nil, a.pause(ctx)
	}
	a.failedSince, a.polls.last = time.Time{}, 0
	if !a.queued && a.req.OnWait != nil {
		a.req.OnWait(&backend.LockedError{Holder: s.holder()})
	}
	a.queued = true
	a.enqueue(s)
	select {
	case n := <-a.news:
		if n.err != nil {
			return nil, stillUncertain(backend.ErrUncertain, n.err)
		}
		return n.granted, nil
	case <-ctx.Done():
		return nil, a.interrupted(ctx.Err())
	case <-a.b.life.Done():
		return nil, a.interrupted(backend.ErrClosed)
	}
}

// accept returns the grant of s. If little is left of a provisional lease, accept renews it
// first. It returns nil if that fails.
func (a *attempt) accept(ctx context.Context, s rowState) *grant {
	g := a.grant(s)
	if s.left() < min(a.req.TTL, provisionalTTL)/2 && g.Renew(ctx, a.req.TTL) != nil {
		return nil
	}
	return g
}

// interrupted returns the error of an attempt that err ended.
func (a *attempt) interrupted(err error) error {
	if !a.queued && !a.unanswered {
		return backend.NotExecuted(err)
	}
	return backend.Uncertain(err)
}
