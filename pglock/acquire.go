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
)

// reply is the answer to a request to acquire.
type reply struct {
	sent     time.Time // before the request was sent
	status   int
	us       int64 // the server's clock
	left     time.Duration
	token    uint64
	owner    string
	metadata string
	first    bool // in the queue
}

func (r reply) locked() *backend.LockedError {
	return &backend.LockedError{Holder: holder(r.owner, r.metadata, r.token, r.left)}
}

func holder(owner, metadata string, token uint64, left time.Duration) backend.Holder {
	return backend.Holder{Party: backend.Party{Owner: owner, Metadata: unescape(metadata)}, Token: token, Left: max(left, 0)}
}

// TryAcquire makes one attempt in one round trip.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, false)
	r, err := a.ask(ctx, false, 0)
	if err == nil && r.status == held {
		err = r.locked()
	}
	if err != nil {
		a.drop()
		return nil, err
	}
	return a.grant(r), nil
}

// Acquire takes the key, waiting in the queue for its turn.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, true)
	defer a.timer.Stop()
	g, err := a.wait(ctx)
	if isUncertain(err) {
		a.settle()
	} else if err != nil {
		a.drop()
	}
	return g, err
}

// ask sends one request to acquire, again for patience if the server undoes it. In
// a reply without an error the status is granted or held.
func (a *attempt) ask(ctx context.Context, queue bool, patience time.Duration) (r reply, err error) {
	b := a.b
	var left, token int64
	var told [3]*string
	r.sent, err = b.queryFor(ctx, patience, nil, func(rows pgx.Rows) error {
		return rows.Scan(&r.status, &r.us, &left, &token, &r.owner, &r.metadata, &r.first, &told[0], &told[1], &told[2])
	}, b.sql.acquire, a.key, a.req.Owner, a.party(), micro(a.req.TTL), queue)
	if err != nil {
		a.dirty = a.dirty || isUncertain(err)
		return r, err
	}
	r.left, r.token = time.Duration(left)*time.Microsecond, uint64(max(token, 0))
	if r.status == abandoned {
		return r, fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	}
	return r, nil
}

// grant is nil if the attempt must ask again.
func (a *attempt) grant(r reply) *grant {
	if !a.granted() {
		return nil
	}
	return &grant{a: a, token: r.token, until: r.sent.Add(min(r.left, a.req.TTL))}
}

const (
	slowestPoll = 500 * time.Millisecond // without a listener; well within a claim
	firstPoll   = 10 * time.Millisecond
)

// wait asks, queues, and waits for the push. Its grant is nil with an error.
func (a *attempt) wait(ctx context.Context) (backend.Grant, error) {
	b := a.b
	var queued, refused bool // refused: there is no connection to listen on
	var failing time.Time    // since when the service does not answer
	backoff, poll := 20*time.Millisecond, firstPoll
	for {
		// Nobody may hand over to a process that does not listen yet: the first
		// request waits in the queue only if it does, and a free key costs one
		// round trip in either case. Without one it asks whenever the listener has
		// tried again, which is well within a claim.
		queue := queued || refused || b.polls() || b.listener.live()
		a.mu.Lock()
		a.again = false
		a.asOf = 0 // the server's clock may have been set back
		a.mu.Unlock()
		a.mend()
		r, err := a.askWithin(ctx, queue, queued)
		if err == nil && r.status == granted {
			if g := a.grant(r); g != nil {
				return g, nil
			}
			continue
		}
		switch {
		case err == nil && queue:
			failing = time.Time{}
			if !queued && a.req.OnWait != nil {
				a.req.OnWait(r.locked())
			}
			queued, backoff = true, 20*time.Millisecond
			a.held(r)
			if b.polls() {
				a.timer.Reset(min(poll, max(r.left, 0)+time.Millisecond, a.req.TTL/3))
				poll = min(2*poll, slowestPoll)
			}
		case err == nil:
			failing = time.Time{}
			if err = b.listener.wait(ctx); err == nil || full(err) {
				refused = err != nil
				continue
			}
		}
		if err != nil {
			if failing.IsZero() {
				failing = time.Now()
			}
			end := ended(ctx)
			switch {
			case end != nil:
				return nil, a.gaveUp(end, queued)
			case !queued:
				return nil, err
			case errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrClosed), time.Since(failing) >= a.req.TTL:
				return nil, backend.Uncertain(err)
			}
			a.timer.Reset(backoff) // ride it out
			backoff = min(2*backoff, time.Second, max(a.req.TTL/12, 20*time.Millisecond))
		}
		select {
		case p := <-a.pushed:
			if g := a.take(p); g != nil {
				return g, nil
			}
		case <-a.timer.C:
		case <-ctx.Done():
			return nil, a.gaveUp(ctx.Err(), queued)
		case <-b.life.Done():
			return nil, a.gaveUp(backend.ErrClosed, queued)
		}
	}
}

// askWithin is ask, which for an attempt in the queue takes no longer than the
// service may fail. One that is not in the queue goes on that long while others come
// first: nothing of it was executed.
func (a *attempt) askWithin(ctx context.Context, queue, queued bool) (reply, error) {
	if !queued {
		return a.ask(ctx, queue, max(a.req.TTL, a.b.opt.timeout))
	}
	limit := max(a.req.TTL, 100*time.Millisecond)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := a.ask(within, queue, 0)
	if err != nil && ended(within) != nil && ended(ctx) == nil {
		err = backend.Uncertain(fmt.Errorf("postgres: no answer within %v", limit)) // not the caller's deadline
	}
	return r, err
}

// gaveUp is the error of an attempt that was ended from outside.
func (a *attempt) gaveUp(err error, queued bool) error {
	if !queued && !a.dirty {
		return err // nothing of it remains
	}
	return backend.Uncertain(err)
}

// take turns a push into a grant. It is nil if the attempt must ask again, which
// returns the same grant for its whole time: when little of the claim is left, when
// the clock pair is no longer good, and when it was broken.
func (a *attempt) take(p push) backend.Grant {
	until := a.until(p)
	if time.Until(until) < p.claim/2 {
		return nil
	}
	if !a.granted() {
		return nil
	}
	return &grant{a: a, token: p.token, until: until}
}

// Abandon makes sure that nothing remains of an attempt. A tombstone in the row
// refuses its requests that arrive later, unless each of them is known to have had
// its answer.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	b.mu.Lock()
	_, settled := b.settled[req.Owner]
	delete(b.attempts, req.Owner)
	b.mu.Unlock()
	_, err := b.exec(ctx, b.sql.abandon, b.key(req.Key), req.Owner, !settled)
	if err == nil {
		b.mu.Lock()
		delete(b.settled, req.Owner)
		b.mu.Unlock()
	}
	return err
}
