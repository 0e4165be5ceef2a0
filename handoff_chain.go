package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// chain is one grant of the backend that several hold, one after the other.
type chain struct {
	ln    *line
	req   backend.Request // by which the backend knows it
	grant backend.Grant
	born  time.Time
	turn  chan struct{} // holds a value while the grant is being renewed: one at a time

	// guarded by the mutex of the handOff, under which nothing asks the driver: it may
	// tell of a loss under a mutex of its own
	until  time.Time     // as the grant said when it was made or renewed
	span   time.Duration // what was left of it when it was made
	nth    int
	holder *loan
	closed bool // it is not passed on any more
	over   bool // it is being given back, or lost
	timer  *time.Timer
}

// newChain makes a chain of what an attempt was granted.
func newChain(a *asking, g backend.Grant) *chain {
	now := time.Now()
	until := trustFrom(a.sent, a.req.TTL, g, a.o.c)
	return &chain{req: a.req, grant: g, born: now, turn: make(chan struct{}, 1), until: until, span: until.Sub(now)}
}

// trustFrom is until when the service keeps a grant by its own word, or by the rule for
// those that leave the counting to the core: here no Lock knows when the request was sent
// that its grant is of.
func trustFrom(sent time.Time, ttl time.Duration, g backend.Grant, c *Client) time.Time {
	until := g.Until()
	if until.IsZero() && c.expires() {
		until = sent.Add(ttl)
	}
	return until
}

// beginLocked lends it to w, the first of its holders.
func (ch *chain) beginLocked(ln *line, a *asking, w *inLine) {
	ch.ln = ln
	if t := ch.grant.Token(); t > maxShifted {
		c := ln.o.c
		c.cleanUp(a.req, a.req.TTL+margin(a.req.TTL), "release of a grant without room in its token", ch.grant.Release)
		ln.serveLocked(w, loanResult{err: backend.Invalid("fencing token", t, fmt.Sprintf("at most %d with local hand-off", int64(maxShifted)))})
		ln.askLocked()
		ln.tidyLocked()
		return
	}
	ln.chain, a.chain = ch, ch
	ch.lendLocked(w)
	if reason := a.lost; reason != nil {
		if tell := ch.loseLocked(); tell != nil {
			tell(reason)
		}
	}
}

// lendLocked makes w the holder.
func (ch *chain) lendLocked(w *inLine) {
	l := &loan{ch: ch, onLost: w.req.OnLost, owner: w.req.Owner, token: loanToken(ch.grant.Token(), ch.nth)}
	ch.holder = l
	var g backend.Grant = l
	if k, ok := ch.grant.(backend.Keeper); ok {
		g = &keptLoan{l, k}
	}
	ch.ln.serveLocked(w, loanResult{loan: g})
	ch.ln.askLocked()
	// The rest of the line waits for this one. Those who came first have been told first.
	for e := ch.ln.waiters.Back(); e != nil; e = e.Prev() {
		next := e.Value.(*inLine)
		if next.told {
			break
		}
		next.tellLocked(ch.lockedLocked())
	}
}

// goesOnLocked tells whether the grant could be passed on if it were released now.
// The next one must get at least half of the time that the first was granted, and some
// of it must be trusted.
func (ch *chain) goesOnLocked(now time.Time) bool {
	if ch.over || ch.closed || ch.nth+1 >= chainLength || now.Sub(ch.born) >= chainAge || ch.ln.o.c.ctx.Err() != nil {
		return false
	}
	left := ch.until.Sub(now)
	return !ch.ln.o.c.expires() || left >= ch.span/2 && left > 2*margin(min(ch.ln.ttl, max(left, 0)))
}

// wakeLocked has the line look again when the chain is too old to go on.
func (ch *chain) wakeLocked() {
	if ch.timer != nil {
		return
	}
	ch.timer = time.AfterFunc(chainAge-time.Since(ch.born), func() {
		ch.ln.o.mu.Lock()
		defer ch.ln.o.mu.Unlock()
		ch.ln.askLocked()
	})
}

// overLocked ends the chain for the line, which asks the backend again.
func (ch *chain) overLocked() {
	ch.over = true
	if ch.timer != nil {
		ch.timer.Stop()
	}
	if ch.ln.chain == ch {
		ch.ln.chain = nil
		ch.ln.askLocked()
		ch.ln.tidyLocked()
	}
}

// loseLocked ends the chain by the service's word, and returns how its holder is told.
func (ch *chain) loseLocked() (tell func(error)) {
	if ch.over {
		return nil
	}
	ch.overLocked()
	return ch.holder.onLost
}

// lockedLocked is what those behind the holder are told.
func (ch *chain) lockedLocked() *LockedError {
	h := Holder{Party: backend.Party{Owner: ch.holder.owner, Metadata: ch.ln.metadata, Age: time.Since(ch.born)}, Token: ch.holder.token}
	if ch.ln.o.c.expires() {
		h.Left = max(time.Until(ch.until), 0)
	}
	return &LockedError{Holder: h}
}

// loan is one holder's turn of a chain.
type loan struct {
	ch     *chain
	owner  string
	token  uint64
	onLost func(error)
	passed bool // to the next; guarded by the mutex of the handOff
}

func (l *loan) Token() uint64 { return l.token }

func (l *loan) Until() time.Time {
	if until := l.ch.grant.Until(); !until.IsZero() {
		return until
	}
	l.ch.ln.o.mu.Lock()
	defer l.ch.ln.o.mu.Unlock()
	return l.ch.until
}

// Renew renews the chain's grant. One that is renewed to another TTL is not passed on.
func (l *loan) Renew(ctx context.Context, ttl time.Duration) error {
	return l.renewBy(ctx, ttl, func(g backend.Grant) error { return g.Renew(ctx, ttl) })
}

func (l *loan) renewBy(ctx context.Context, ttl time.Duration, send func(backend.Grant) error) error {
	return l.renew(ctx, ttl, ttl == l.ch.ln.ttl, send)
}

// renewBy renews g by what the backend gave: in a loan that is the chain's grant.
func renewBy(ctx context.Context, g backend.Grant, ttl time.Duration, send func(backend.Grant) error) error {
	if l := loanOf(g); l != nil {
		return l.renewBy(ctx, ttl, send)
	}
	return send(g)
}

func (l *loan) renew(ctx context.Context, ttl time.Duration, passable bool, send func(backend.Grant) error) error {
	ch := l.ch
	select {
	case ch.turn <- struct{}{}:
	case <-ctx.Done():
		return contextError(ctx)
	}
	defer func() { <-ch.turn }()
	ch.ln.o.mu.Lock()
	passed := l.passed
	if !passed && !passable {
		ch.closed = true
		ch.ln.askLocked()
	}
	ch.ln.o.mu.Unlock()
	if passed {
		return fmt.Errorf("%w: passed on", ErrLost)
	}
	sent := time.Now()
	err := send(ch.grant)
	until := trustFrom(sent, ttl, ch.grant, ch.ln.o.c)
	ch.ln.o.mu.Lock()
	passed = l.passed
	if err == nil {
		ch.until = until
	}
	var tell func(error)
	if errors.Is(err, ErrLost) {
		tell = ch.loseLocked()
	}
	ch.ln.o.mu.Unlock()
	// The error tells this holder. If it has passed the chain on meanwhile, the next one
	// must be told.
	if passed && tell != nil {
		tell(err)
	}
	return err
}

// Release passes the key on to the next in line, or gives it back to the backend.
func (l *loan) Release(ctx context.Context) error {
	ch := l.ch
	o := ch.ln.o
	o.mu.Lock()
	if l.passed {
		o.mu.Unlock()
		return fmt.Errorf("%w: passed on", ErrLost)
	}
	next := ch.ln.headLocked()
	if next != nil && ch.ln.chain == ch && ch.ln.asking == nil && ch.goesOnLocked(time.Now()) {
		l.passed = true
		ch.nth++
		ch.lendLocked(next)
		o.mu.Unlock()
		return nil
	}
	ch.overLocked()
	o.mu.Unlock()
	return ch.grant.Release(ctx)
}

// keptLoan is a loan of a grant that can be left to expire.
type keptLoan struct {
	*loan
	keeper backend.Keeper
}

// Keep implements backend.Keeper. There is no holder any more to pass it on.
func (l *keptLoan) Keep(ctx context.Context, d time.Duration) error {
	return l.renew(ctx, d, false, func(backend.Grant) error { return l.keeper.Keep(ctx, d) })
}

// loanOf returns the loan that a grant is, or nil.
func loanOf(g backend.Grant) *loan {
	switch g := g.(type) {
	case *loan:
		return g
	case *keptLoan:
		return g.loan
	}
	return nil
}

// atBackend tells by what the backend knows a grant.
func atBackend(owner string, g backend.Grant) BackendHold {
	if l := loanOf(g); l != nil {
		return BackendHold{l.ch.req.Owner, l.ch.grant.Token()}
	}
	return BackendHold{owner, g.Token()}
}
