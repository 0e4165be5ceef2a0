package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

const tokenClause = "Token is constant for a grant and greater than that of every earlier grant of the same key."

var fencingCases = []Case{
	{
		ID:     "fencing/31-constant-and-own",
		Title:  "a token stays the same during a hold, and a former holder reads its own, never its successor's",
		Clause: tokenClause,
		needs:  []need{declared(backend.RequireFencing)},
		run:    tokenConstant,
	},
	{
		ID:     "fencing/32-over-release",
		Title:  "tokens rise over releases, tries, waits and clients",
		Clause: tokenClause,
		needs:  []need{declared(backend.RequireFencing)},
		run:    risesOverRelease,
	},
	{
		ID:     "fencing/32-over-expiry",
		Title:  "tokens rise over an expiry",
		Clause: tokenClause,
		needs:  []need{declared(backend.RequireFencing), needTTL},
		run:    risesOverExpiry,
	},
	{
		ID:     "fencing/32-over-break",
		Title:  "tokens rise over a break",
		Clause: "After a break the token still rises.",
		needs:  []need{declared(backend.RequireFencing), needBreak},
		run:    risesOverBreak,
	},
	{
		ID:     "fencing/32-over-state-loss",
		Title:  "tokens rise over the destruction of the key's state",
		Clause: "Tokens rise over the events that Fencing declares.",
		needs: []need{needDestroyState, {"fence=restart, or a harness that keeps the fence", func(t *T) (Status, string) {
			if t.h.KeepsFence || t.caps.Fencing >= backend.FencingRestart {
				return "", ""
			}
			return NotDeclared, "fencing " + t.caps.Fencing.String() + " does not survive the loss of the service's data"
		}}},
		run: risesOverStateLoss,
	},
	{
		ID:     "fencing/32-over-session",
		Title:  "tokens rise over the end of a session",
		Clause: tokenClause,
		needs:  []need{declared(backend.RequireFencing), needExpireSession},
		run:    risesOverSession,
	},
	{
		ID:     "fencing/32-over-restart",
		Title:  "tokens rise over a restart of the service",
		Clause: "If Fencing is FencingRestart, tokens rise over a restart that loses the data of the service.",
		needs:  []need{declared(backend.RequireFencingRestart), needRestart},
		alone:  true,
		run:    func(t *T) { t.risesOver("a restart of the service", t.h.RestartServer) },
	},
	{
		ID:     "fencing/32-over-failover",
		Title:  "tokens rise over a failover of the service",
		Clause: "If Fencing is FencingFailover, tokens rise over a failover to a node that lacks the last writes.",
		needs:  []need{declared(backend.RequireFencingFailover), needFailover},
		alone:  true,
		run:    func(t *T) { t.risesOver("a failover of the service", t.h.Failover) },
	},
	{
		ID:     "fencing/33-guarded-write",
		Title:  "a guarded write with a stale token is rejected",
		Clause: "A resource that remembers the highest token refuses a lower one.",
		needs:  []need{declared(backend.RequireFencing), needGuardedWrite},
		run:    guardedWrite,
	},
}

func tokenConstant(t *T) {
	key := t.key("constant")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	token, ok := l.Token()
	if !ok || token == 0 {
		t.fatalf("fencing %v is declared: want a token, got %d, %v", t.caps.Fencing, token, ok)
	}
	for range 10 {
		if err := l.Check(t.ctx); err != nil { // which renews it, too
			t.fatalf("Check by the holder: want nil, got %v", err)
		}
		if now, _ := l.Token(); now != token {
			t.fatalf("the token of a lease: want it constant, was %d, got %d", token, now)
		}
	}
	t.mustUnlock(l, "the holder")

	raw1, raw2 := t.open(), t.open()
	_, g1 := t.holdRaw(raw1, key, t.longTTL())
	own := g1.Token()
	if _, before := l.BackendHold(); own <= before {
		t.errorf("token of a grant after one of %d: want it greater, got %d", before, own)
	}
	if err := g1.Release(t.ctx); err != nil {
		t.fatalf("Release by the holder: want nil, got %v", err)
	}
	for _, raw := range []backend.Backend{raw2, raw1} {
		_, g2 := t.holdRaw(raw, key, t.longTTL())
		if g2.Token() <= own {
			t.errorf("token of the successor: want more than %d, got %d", own, g2.Token())
		}
		if now := g1.Token(); now != own {
			t.errorf("token of the former grant while a successor holds %d: want its own, %d, got %d", g2.Token(), own, now)
		}
		if err := g2.Release(t.ctx); err != nil {
			t.fatalf("Release by the successor: want nil, got %v", err)
		}
	}
}

// ladder checks that each token is greater than those before.
type ladder struct {
	t    *T
	key  string
	last uint64
}

func (s *ladder) step(l *lock.Lease, over string) {
	token, ok := l.Token()
	if !ok || token <= s.last {
		s.t.fatalf("token of %q over %s: want more than %d, got %d", s.key, over, s.last, token)
	}
	s.last = token
}

func risesOverRelease(t *T) {
	key := t.key("rises")
	s := &ladder{t: t, key: key}
	cs := []*lock.Client{t.client(), t.client()}
	w := t.waiter()
	for i := range t.rounds(30, 300) {
		l := t.mustLock(cs[i%2].Mutex(key), "a free key")
		s.step(l, "a release")
		got := t.lockWaiting(t.ctx, w, key)
		t.mustUnlock(l, "the holder")
		l = t.granted(t.slack(), "the waiter", got).lease
		s.step(l, "a hand-off")
		t.mustUnlock(l, "the waiter")
	}
	// A new client finds the counter where it was, also after a time in which the key
	// was free.
	for range 3 {
		t.idleFor(20 * time.Millisecond)
		l := t.mustLock(t.client().Mutex(key), "a free key")
		s.step(l, "a pause, by a new client")
		t.mustUnlock(l, "the holder")
	}
}

func risesOverExpiry(t *T) {
	key := t.key("rises-expiry")
	s := &ladder{t: t, key: key}
	c := t.client()
	for range 2 {
		req := request(key, t.ttl())
		var g backend.Grant
		raw := t.open()
		t.eventually(t.ttl()+t.slack(), "a key whose holder does not renew", func() (err error) {
			g, err = raw.TryAcquire(t.ctx, req)
			return err
		})
		if g.Token() <= s.last {
			t.fatalf("token over an expiry: want more than %d, got %d", s.last, g.Token())
		}
		s.last = g.Token()
	}
	l := t.granted(t.ttl()+t.slack(), "a waiter behind a holder that does not renew", t.lockAsync(t.ctx, c.Mutex(key))).lease
	s.step(l, "an expiry with a waiter")
	t.mustUnlock(l, "the waiter")
}

func risesOverBreak(t *T) {
	key := t.key("rises-break")
	s := &ladder{t: t, key: key}
	c, w := t.client(), t.waiter()
	for range 5 {
		s.step(t.mustLock(c.Mutex(key), "a free key"), "a break of a key without waiters")
		got := t.lockWaiting(t.ctx, w, key)
		for _, next := range []<-chan locked{got, nil} {
			if _, err := c.Break(t.ctx, key); err != nil {
				t.fatalf("Break of a held key: want nil, got %v", err)
			}
			if next != nil {
				s.step(t.granted(t.slack(), "the waiter after a break", next).lease, "a break of a key with a waiter")
			}
		}
	}
}

func risesOverStateLoss(t *T) {
	key := t.key("rises-destroyed")
	s := &ladder{t: t, key: key}
	c := t.client()
	for range 3 {
		s.step(t.mustLock(c.Mutex(key), "a free key"), "the destruction of its state")
		if err := t.h.DestroyState(t.ctx, key); err != nil {
			t.fatalf("DestroyState: %v", err)
		}
	}
	t.free(c, key, "after its state was destroyed", t.slack())
}

func risesOverSession(t *T) {
	key := t.key("rises-session")
	s := &ladder{t: t, key: key}
	for range 2 {
		b := t.newBackend()
		c := t.clientOf(b, lock.WithTTL(t.lossTTL()))
		s.step(t.granted(2*t.lossTTL()+t.slack(), "the key of an ended session", t.lockRetry(c.Mutex(key))).lease, "the end of a session")
		if err := t.h.ExpireSession(t.ctx, b); err != nil {
			t.fatalf("ExpireSession: %v", err)
		}
	}
}

// risesOver checks tokens before and after an event that the service survives.
func (t *T) risesOver(event string, happen func(context.Context) error) {
	key := t.key("rises-event")
	s := &ladder{t: t, key: key}
	c := t.client(lock.WithTTL(t.ttl()))
	relock := func() *lock.Lease {
		l := t.granted(2*t.ttl()+t.slack()+5*time.Second, "the key after "+event, t.lockRetry(c.Mutex(key))).lease
		s.step(l, event)
		return l
	}
	for range 2 {
		l := relock()
		if err := happen(t.ctx); err != nil {
			t.fatalf("%s: %v", event, err)
		}
		if err := l.Unlock(t.ctx); err != nil && !errors.Is(err, lock.ErrLost) {
			t.notef("Unlock after %s: %v", event, err)
		}
	}
	t.mustUnlock(relock(), "the holder")
}

// lockRetry locks as a caller would that tries again after an error.
func (t *T) lockRetry(m lock.Mutex) <-chan locked {
	out := make(chan locked, 1)
	go func() {
		for {
			l, err := m.Lock(t.ctx)
			if err == nil || t.ctx.Err() != nil {
				out <- locked{l, err, time.Now()}
				return
			}
			time.Sleep(20 * time.Millisecond) // between two attempts
		}
	}()
	return out
}

func guardedWrite(t *T) {
	key := t.key("guarded")
	c := t.client()
	old := t.mustLock(c.Mutex(key), "a free key")
	stale, _ := old.Token()
	if err := t.h.GuardedWrite(t.ctx, key, stale); err != nil {
		t.errorf("a guarded write by the holder: want nil, got %v", err)
	}
	t.mustUnlock(old, "the holder")
	next := t.mustLock(c.Mutex(key), "a released key")
	token, _ := next.Token()
	if err := t.h.GuardedWrite(t.ctx, key, token); err != nil {
		t.errorf("a guarded write by the successor: want nil, got %v", err)
	}
	if err := t.h.GuardedWrite(t.ctx, key, stale); err == nil {
		t.errorf("a guarded write with the stale token %d while %d holds: want it refused, got nil", stale, token)
	}
	t.mustUnlock(next, fmt.Sprintf("the holder of token %d", token))
}
