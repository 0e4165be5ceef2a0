package places

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// state is that of an attempt. The table in the package documentation says what an event does in each.
type state uint8

const (
	waiting state = iota
	holding
	over
)

// errRequeue means that the attempt has no place any more: it puts another one.
var errRequeue = errors.New("the place in the queue is gone")

// attempt is one attempt to acquire a key. If it holds, it is the backend.Grant. Its fields are guarded by b.mu, but
// those that do not change and those of its own goroutine.
type attempt struct {
	b   *Backend
	req backend.Request

	s          *session // of the last request
	state      state
	unanswered bool  // a request in this session had no answer: the service may still execute it
	place      Place // its ID is "" while it has none, or that is not known
	doubted    bool  // a grant of it was broken, while it did not know of one
	lost       error
	number     int // see Put
	numbered   bool
	removals   int           // that were begun
	ttl        time.Duration // until which the grant is trusted, from a renewal of the session
	renewed    time.Time     // from which trust counted at the grant, and at its last renewal

	wake   chan error // capacity 1: nil when it holds; made when it begins to wait
	queued bool       // it has had a place
	waited bool       // OnWait was called
}

// acquire returns nil when the attempt holds its key. It tries again if its place has gone or, after it had one, if the
// service fails for up to the TTL. The process may have been stopped for that long, so it gives up only after a try
// that began later.
func (a *attempt) acquire(ctx context.Context, waits bool) error {
	for answered := time.Now(); ; {
		begun := time.Now()
		err := a.once(ctx, waits, begun.Sub(answered) >= a.req.TTL)
		if err == nil {
			err = a.confirm(ctx)
		}
		if s, _, lost := a.held(); err == nil && lost == nil {
			a.renewed, _ = s.Trust()
		}
		if errors.Is(err, errRequeue) {
			answered = time.Now()
			continue
		}
		if err == nil || !a.queued || ctx.Err() != nil || a.b.life.Context().Err() != nil ||
			errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrLocked) || begun.Sub(answered) >= a.req.TTL {
			return err
		}
		if !call.Sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// confirm checks the place of a grant if one of the attempt was broken before it knew of it: maybe this one.
func (a *attempt) confirm(ctx context.Context) error {
	a.b.mu.Lock()
	doubted := a.doubted
	a.doubted = false
	a.b.mu.Unlock()
	if !doubted {
		return nil
	}
	c, err := a.b.checks.check(ctx, a.b, a.place)
	if err == nil && c == Ended {
		return errRequeue
	}
	return err
}

// once puts a place and, if waits is set, waits until that holds or is gone.
func (a *attempt) once(ctx context.Context, waits, late bool) error {
	b := a.b
	limit := max(a.req.TTL, b.cfg.RequestTimeout)
	if late {
		limit = max(a.req.TTL/4, time.Second) // to find out whether the service answers again
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := a.join(within)
	if err != nil {
		return ownLimit(ctx, within, limit, err)
	}
	mode := Try
	if waits {
		mode = b.entry(a.req.Key, a.req.Share)
	}
	r, err := b.svc.Put(within, Put{Request: a.req, Session: s.Session, Mode: mode, Number: a.number})
	if mode == Enter {
		b.entered(a.req.Key)
	}
	b.mu.Lock()
	a.unanswered = a.unanswered || r.Unanswered || err != nil && backend.OutcomeUnknown(err)
	b.mu.Unlock()
	switch {
	case errors.Is(err, ErrEnded):
		b.end(s, b.cfg.SessionTTL(a.req.TTL))
		return errRequeue
	case err != nil:
		return ownLimit(ctx, within, limit, err)
	case r.Place == nil:
		return a.lockedError(&r.Queue)
	}
	b.mu.Lock()
	a.queued, a.place = true, *r.Place
	switch {
	case s.ended != nil:
		err = errRequeue
	case a.state == over:
		err = backend.Uncertain(fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner))
	case r.Holds || a.req.Share.Capacity == 0 && r.Queue.Holders() > 0 && r.Queue.Holders() == len(r.Queue.Places):
		a.state = holding
	case !waits:
		err = backend.Uncertain(a.lockedError(&r.Queue))
	default:
		a.wake = make(chan error, 1)
		held := r.Queue.Holders() // permits that hold wait for their slots only
		report := !a.waited && a.req.OnWait != nil && (held == 0 || held < len(r.Queue.Places))
		l := b.enter(a, mode, r.Queue)
		locked := a.lockedError(&l.queue)
		b.mu.Unlock()
		if report {
			a.waited = true
			a.req.OnWait(locked)
		}
		return a.await(ctx, l)
	}
	b.mu.Unlock()
	return err
}

// ownLimit returns the error of a request. If it is the end of a limit of the machine, it does not match a deadline,
// which is for those of the caller.
func ownLimit(ctx, within context.Context, limit time.Duration, err error) error {
	if call.Ended(within) == nil || call.Ended(ctx) != nil {
		return err
	}
	late := fmt.Errorf("no answer within %v", limit)
	if backend.OutcomeUnknown(err) {
		return backend.Uncertain(late)
	}
	return backend.NotExecuted(late)
}

func (a *attempt) lockedError(q *Queue) *backend.LockedError {
	locked := &backend.LockedError{}
	if len(q.Places) > 0 && !q.More && q.Places[0].ID != a.place.ID && q.Places[0].Token > 0 { // else it was not read
		locked.Holder = q.Places[0].Holder()
	}
	return locked
}

// await waits in the line of the key.
func (a *attempt) await(ctx context.Context, l *line) error {
	select {
	case err := <-a.wake:
		return err
	case <-ctx.Done():
	case <-a.b.life.Context().Done():
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	select {
	case err := <-a.wake: // at the same time
		return err
	default:
	}
	l.leave(a)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return backend.ErrClosed
}

// wakeWith ends the wait of an attempt, if it waits. b.mu is held.
func (a *attempt) wakeWith(err error) {
	if l := a.b.lines[a.req.Key]; l != nil && l.leave(a) {
		if err == nil {
			a.state = holding
		}
		a.wake <- err
	}
}

// failed returns the error of an attempt that ended without a grant. If something may remain of it, it stays known
// until it is abandoned.
func (a *attempt) failed(err error) error {
	a.b.mu.Lock()
	remains := a.queued || a.unanswered
	a.b.mu.Unlock()
	if remains {
		return backend.Uncertain(err)
	}
	a.forget(true)
	if errors.Is(err, backend.ErrLocked) || errors.Is(err, backend.ErrInvalid) {
		return err
	}
	return backend.NotExecuted(err)
}

// removal is of all that may remain of the attempt. b.mu is held.
func (a *attempt) removal() Removal {
	a.removals++
	r := Removal{Place: a.place, Key: a.req.Key, Asked: a.req, Number: a.number, Late: a.unanswered}
	if a.s != nil && a.s.Session != nil {
		r.Session = a.s.Session
	}
	return r
}

// forget ends an attempt. If gone is set, nothing of it remains at the service.
func (a *attempt) forget(gone bool) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.state = over
	if a.b.attempts[a.req.Owner] == a {
		delete(a.b.attempts, a.req.Owner)
	}
	a.leave()
	a.s = nil
	if a.numbered {
		a.numbered = false
		a.b.unnumber(a.req.Key, a.number, a.removals <= 1)
	}
	if l := a.b.lines[a.req.Key]; l != nil {
		change := Interrupted
		if gone {
			change = Ended
		}
		l.changed(a.place.as(change))
	}
}
