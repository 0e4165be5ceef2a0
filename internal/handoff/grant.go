package handoff

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/trust"
)

// turnBits of a token number the turns of a grant.
const turnBits = 8

// maxInnerToken is the greatest token of the inner backend that leaves room for the turns
// in a signed number, as databases keep it.
const maxInnerToken = math.MaxInt64 >> turnBits

// turnToken returns the token of the nth turn of a grant. Zero stays zero: no tokens.
func turnToken(t uint64, nth int) uint64 {
	if t == 0 {
		return 0
	}
	return t<<turnBits | uint64(nth)
}

// sharedGrant is a grant of the inner backend that requests use one after the other.
type sharedGrant struct {
	q        *localQueue
	req      backend.Request // of the attempt
	grant    backend.Grant
	began    trust.Instant // before the request that was granted
	created  time.Time
	renewing chan struct{} // capacity 1: renewals do not overlap

	// Guarded by the mutex of the Backend.
	expires    time.Time     // Until of grant when it was made or renewed
	firstTrust time.Duration // what was left until then at first
	turns      int           // before the present one
	turn       *turn
	closed     bool // it is not passed on any more
	over       bool // it is lost or being released
	timer      *time.Timer
}

func newSharedGrant(a *attempt, g backend.Grant, began trust.Instant) *sharedGrant {
	now, expires := time.Now(), g.Until()
	return &sharedGrant{req: a.req, grant: g, began: began, created: now, renewing: make(chan struct{}, 1), expires: expires, firstTrust: expires.Sub(now)}
}

// beginLocked gives w the first turn.
func (s *sharedGrant) beginLocked(q *localQueue, a *attempt, w *localRequest) {
	s.q = q
	if t := s.grant.Token(); t > maxInnerToken {
		q.b.release(s.grant, a.req, "release of a grant with too great a token")
		q.serveLocked(w, turnResult{err: errGreatToken(t)})
		q.sendLocked()
		q.forgetLocked()
		return
	}
	q.grant, a.grant = s, s
	s.startTurnLocked(w)
	if reason := a.lost; reason != nil {
		if notify := s.loseLocked(); notify != nil {
			notify(reason)
		}
	}
}

// startTurnLocked gives w the turn.
func (s *sharedGrant) startTurnLocked(w *localRequest) {
	s.turn = &turn{shared: s, onLost: w.req.OnLost, owner: w.req.Owner, token: turnToken(s.grant.Token(), s.turns)}
	s.q.serveLocked(w, turnResult{turn: s.turn})
	s.q.sendLocked()
	// The other requests wait for this turn. Those at the front know already that they wait.
	for e := s.q.requests.Back(); e != nil; e = e.Prev() {
		next := e.Value.(*localRequest)
		if next.waiting {
			break
		}
		next.notifyWaitLocked(s.lockedLocked())
	}
}

// canPassLocked reports whether the grant may be passed on at now: after less than
// maxTurns turns, younger than maxPassAge, with some trust left and at least half of the
// trust that the first turn had, while the client is open, and if the machine was not suspended
// since the grant was asked for.
func (s *sharedGrant) canPassLocked(now time.Time) bool {
	if s.over || s.closed || s.turns+1 >= maxTurns || now.Sub(s.created) >= maxPassAge || s.q.b.cleaner.Tasks.Closing().Err() != nil {
		return false
	}
	left := s.expires.Sub(now)
	return s.expires.IsZero() || s.began.SuspendedBy(now) == 0 && left >= s.firstTrust/2 && left > 2*trust.Margin(min(s.q.ttl, max(left, 0)))
}

// startTimerLocked sends an attempt when the grant is too old to be passed on.
func (s *sharedGrant) startTimerLocked() {
	if s.timer != nil {
		return
	}
	s.timer = time.AfterFunc(maxPassAge-time.Since(s.created), func() {
		s.q.b.mu.Lock()
		defer s.q.b.mu.Unlock()
		s.q.sendLocked()
	})
}

// endLocked ends the sharing of the grant. The queue sends another attempt.
func (s *sharedGrant) endLocked() {
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.q.grant == s {
		s.q.grant = nil
		s.q.sendLocked()
		s.q.forgetLocked()
	}
}

// loseLocked ends the grant as lost, and returns the function that notifies the present
// turn.
func (s *sharedGrant) loseLocked() (notify func(error)) {
	if s.over {
		return nil
	}
	s.endLocked()
	return s.turn.onLost
}

// lockedLocked returns the error of a request that waits for the present turn.
func (s *sharedGrant) lockedLocked() *backend.LockedError {
	h := backend.Holder{Contender: backend.Contender{Owner: s.turn.owner, Metadata: s.q.metadata, Age: time.Since(s.created)}, Token: s.turn.token}
	if !s.expires.IsZero() {
		h.Left = max(time.Until(s.expires), 0)
	}
	return &backend.LockedError{Holder: h}
}

// turn is one use of a shared grant.
type turn struct {
	shared *sharedGrant
	owner  string
	token  uint64
	onLost func(error)
	passed bool // the grant was passed on; guarded by the mutex of the Backend
}

func (t *turn) Token() uint64 { return t.token }

// Until does not ask the inner grant, which a former turn may be renewing.
func (t *turn) Until() time.Time {
	t.shared.q.b.mu.Lock()
	defer t.shared.q.b.mu.Unlock()
	return t.shared.expires
}

// GrantedAs returns the owner id and the token by which the inner backend knows the grant.
func (t *turn) GrantedAs() (owner string, token uint64) {
	return t.shared.req.Owner, t.shared.grant.Token()
}

var errPassedOn = fmt.Errorf("%w: passed on", backend.ErrLost)

// Renew renews the shared grant. If it is renewed to another TTL, it is not passed on.
func (t *turn) Renew(ctx context.Context, ttl time.Duration) error {
	return t.renew(ctx, ttl == t.shared.q.ttl, func() error { return t.shared.grant.Renew(ctx, ttl) })
}

// Keep implements backend.Keeper. The grant is not passed on any more.
func (t *turn) Keep(ctx context.Context, d time.Duration) error {
	keep := t.shared.grant.Renew
	if k, ok := backend.As[backend.Keeper](t.shared.grant); ok {
		keep = k.Keep
	}
	return t.renew(ctx, false, func() error { return keep(ctx, d) })
}

func (t *turn) renew(ctx context.Context, passable bool, send func() error) error {
	s, mu := t.shared, &t.shared.q.b.mu
	select {
	case s.renewing <- struct{}{}:
	case <-ctx.Done():
		return retry.ContextError(ctx)
	}
	defer func() { <-s.renewing }()
	mu.Lock()
	passed := t.passed
	if !passed && !passable {
		s.closed = true
		s.q.sendLocked()
	}
	mu.Unlock()
	if passed {
		return errPassedOn
	}
	err := send()
	expires := s.grant.Until()
	mu.Lock()
	passed = t.passed
	if err == nil {
		s.expires = expires
	}
	var notify func(error)
	if errors.Is(err, backend.ErrLost) {
		notify = s.loseLocked()
	}
	mu.Unlock()
	// This turn has the error. If it has passed the grant on meanwhile, the next turn must
	// be notified.
	if passed && notify != nil {
		notify(err)
	}
	return err
}

// Release passes the grant to the head of the local queue. It releases the grant to the
// inner backend if the queue is empty, if an attempt of the queue is in flight, or if
// canPassLocked forbids passing it on. If it was passed on before, Release returns an error
// that matches backend.ErrLost.
func (t *turn) Release(ctx context.Context) error {
	s, q := t.shared, t.shared.q
	q.b.mu.Lock()
	if t.passed {
		q.b.mu.Unlock()
		return errPassedOn
	}
	next := q.headLocked()
	if next != nil && q.grant == s && q.attempt == nil && s.canPassLocked(time.Now()) {
		t.passed = true
		s.turns++
		s.startTurnLocked(next)
		q.b.mu.Unlock()
		return nil
	}
	s.endLocked()
	q.b.mu.Unlock()
	return s.grant.Release(ctx)
}
