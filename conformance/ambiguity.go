package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var ambiguityCases = []Case{
	{
		ID:     "ambiguity/34-acquire-sent-twice",
		Title:  "an acquire that is sent twice is granted once",
		Clause: "TryAcquire is idempotent on Owner: sent twice, it is granted once.",
		run:    acquireTwice,
	},
	{
		ID:     "ambiguity/34-acquire-again-extends",
		Title:  "an acquire that is sent again by the same owner is kept for as long as its grant says",
		Clause: "A repeated request of an attempt that holds the key is granted, and Until of that grant is kept.",
		needs:  []need{needTTL},
		run:    acquireAgainExtends,
	},
	{
		ID:     "ambiguity/34-acquire-reply-dropped",
		Title:  "an acquire whose reply was dropped leaves nothing behind",
		Clause: "Abandon makes sure that nothing remains of an attempt whose outcome is not known.",
		run:    acquireReplyDropped,
	},
	{
		ID:     "ambiguity/34-hand-off-reply-dropped",
		Title:  "a waiter that never received its grant leaves nothing behind",
		Clause: "Abandon makes sure that nothing remains of an attempt whose outcome is not known.",
		needs:  []need{needQueue},
		run:    handOffReplyDropped,
	},
	{
		ID:     "ambiguity/34-abandon-reply-dropped",
		Title:  "Abandon is sent again until it is acknowledged, and a late one changes nothing",
		Clause: "Abandon is idempotent, and nil means that the service acknowledged it.",
		run:    abandonReplyDropped,
	},
	{
		ID:     "ambiguity/34-abandoned-together",
		Title:  "of many attempts abandoned together nothing remains, and keys of other attempts stay held",
		Clause: "AbandonBatch abandons each attempt as Abandon does. The error at i is that of the attempt at i. An attempt that fails does not keep others from being abandoned.",
		needs:  []need{needBatchAbandoner},
		run:    abandonedTogether,
	},
	{
		ID:     "ambiguity/34-renew-reply-dropped",
		Title:  "a renewal whose reply was dropped is no loss",
		Clause: "Renew sent again extends the same grant.",
		needs:  []need{needExpiry},
		run:    renewReplyDropped,
	},
	{
		ID:     "ambiguity/34-release-reply-dropped",
		Title:  "a release whose replies were dropped several times frees the key once",
		Clause: "Release called again after an error completes.",
		run:    releaseReplyDropped,
	},
	{
		ID:     "ambiguity/34-link-acquire",
		Title:  "over the network: an acquire that is executed and not answered",
		Clause: "A request whose outcome is not known is abandoned.",
		needs:  []need{needLink},
		run:    func(t *T) { t.linkAcquire(false) },
	},
	{
		ID:     "ambiguity/34-link-enqueue",
		Title:  "over the network: a wait that begins and is not answered",
		Clause: "A request whose outcome is not known is abandoned.",
		needs:  []need{needLink},
		run:    func(t *T) { t.linkAcquire(true) },
	},
	{
		ID:     "ambiguity/34-link-release",
		Title:  "over the network: a release that is executed and not answered",
		Clause: "Release called again after an error completes, and never frees a successor.",
		needs:  []need{needLink},
		run:    linkRelease,
	},
	{
		ID:     "ambiguity/34-link-unknown-outcome",
		Title:  "over the network: the error of a request that was executed and not answered does not say that it was not",
		Clause: "Only a request that the service certainly did not execute may be marked by NotExecuted.",
		needs:  []need{needLink},
		run:    linkUnknownOutcome,
	},
	{
		ID:     "ambiguity/34-link-silent-at-each-step",
		Title:  "over the network: a request of several exchanges, of which the first n are answered",
		Clause: "Only a request that the service certainly did not execute may be marked by NotExecuted.",
		needs:  []need{needLink},
		run:    silentAtEachStep,
	},
	{
		ID:     "ambiguity/34-link-cancel",
		Title:  "over the network: a cancel that is executed and not answered",
		Clause: "Nothing remains of an attempt that was given up and abandoned.",
		needs:  []need{needLink},
		run:    linkCancel,
	},
	{
		ID:     "ambiguity/35-reset-at-each-step",
		Title:  "connections are reset at each reply in turn: never two holders, and no key stays held past its bound",
		Clause: "A failed exchange is an unknown outcome, never a grant, a loss or a release.",
		needs:  []need{needLink},
		run:    resetAtEachStep,
	},
	{
		ID:     "ambiguity/35-restart-while-held",
		Title:  "a restart of the service while a key is held: kept, or known to be lost",
		Clause: "Renew returns the current state of the service; a driver reconnects by itself.",
		needs:  []need{needRestart},
		alone:  true,
		run:    restartWhileHeld,
	},
	{
		ID:     "ambiguity/35-restart-while-waiting",
		Title:  "a restart of the service while a key is waited for: the waiter gets it",
		Clause: "Acquire rides out a failing service for up to req.TTL since its last answer.",
		needs:  []need{needRestart},
		alone:  true,
		run:    restartWhileWaiting,
	},
}

func acquireTwice(t *T) {
	raw, again, other := t.open(), t.open(), t.client()
	key := t.key("twice")
	req := request(key, t.longTTL())
	g1 := t.try(raw, req, "a free key")
	g2 := t.try(raw, req, "the same attempt, sent again")
	if g1.Token() != g2.Token() {
		t.errorf("tokens of one attempt that was sent twice: want the same, got %d and %d", g1.Token(), g2.Token())
	}
	t.refused(other.Mutex(key), "a key that one attempt took twice")
	stranger := request(key, t.longTTL())
	t.tryRefused(again, stranger, "another attempt")
	if err := g2.Release(t.ctx); err != nil {
		t.errorf("Release of an attempt that was sent twice: want nil, got %v", err)
	}
	t.free(other, key, "one release of an attempt that was sent twice", t.slack())
	next := t.mustLock(other.Mutex(key), "a released key")
	if err := g1.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("Release of the first answer's grant, with a successor: want ErrLost, got %v", err)
	}
	t.refused(t.client().Mutex(key), "the successor's key")
	t.mustUnlock(next, "the successor")
}

func acquireAgainExtends(t *T) {
	raw, other := t.open(), t.open()
	ttl := t.clampTTL(2 * time.Second)
	req := request(t.key("again"), ttl)
	t.try(raw, req, "a free key")
	t.idleFor(ttl * 2 / 3)
	g := t.try(raw, req, "the same attempt, sent again")
	for until := g.Until(); time.Now().Before(until); t.idleFor(ttl / 40) {
		next, err := other.TryAcquire(t.ctx, request(req.Key, t.longTTL()))
		if at := time.Now(); err == nil && at.Before(until) {
			t.errorf("a key whose holder asked again %v after its first request: want it held until %v after that, another client was granted it %v earlier",
				ttl*2/3, ttl, until.Sub(at))
		}
		if err == nil {
			_ = next.Release(t.ctx)
			return
		}
	}
	if err := g.Release(t.ctx); err != nil && !errors.Is(err, backend.ErrLost) {
		t.errorf("Release of an attempt that was sent twice: want nil or ErrLost, got %v", err)
	}
}

func acquireReplyDropped(t *T) {
	other := t.client()
	for _, name := range []string{"TryLock", "Lock"} {
		key := t.key("dropped")
		tm := t.tamper()
		tm.dropTry.Store(1)
		tm.dropAcquire.Store(1)
		m := t.clientOf(tm.backend()).Mutex(key)
		call := m.TryLock
		if name == "Lock" {
			call = m.Lock
		}
		if l, err := call(t.ctx); err == nil {
			t.fatalf("%s whose reply was dropped: want an error, got %s", name, leaseText(l))
		} else if !errors.Is(err, errReplyLost) {
			t.errorf("%s whose reply was dropped: want the cause in its error, got %v", name, err)
		}
		t.free(other, key, fmt.Sprintf("after a %s whose reply was dropped (TTL %v)", name, t.longTTL()), t.slack())
	}
}

func handOffReplyDropped(t *T) {
	key := t.key("dropped")
	other := t.client()
	l := t.mustLock(other.Mutex(key), "a free key")
	tm := t.tamper()
	tm.dropAcquire.Store(1)
	got := t.lockWaiting(t.ctx, t.waiterOf(tm.backend()), key)
	behind := t.lockWaiting(t.ctx, t.waiter(), key)
	t.mustUnlock(l, "the holder")
	// Either may be first where there is no order.
	var dropped, granted bool
	for !dropped || !granted {
		select {
		case g := <-got:
			if dropped = true; g.err == nil {
				t.fatalf("a waiter whose grant was dropped: want an error, got %s", leaseText(g.lease))
			}
		case g := <-behind:
			if granted = true; g.err != nil {
				t.fatalf("the waiter beside one whose grant was dropped: want a grant, got %v", g.err)
			}
			t.mustUnlock(g.lease, "the other waiter")
		case <-time.After(t.slack()):
			t.fatalf("two waiters of whom one does not receive its grant (TTL %v): want both at an end within %v (the one: %v, the other: %v)", t.longTTL(), t.slack(), dropped, granted)
		}
	}
	t.free(other, key, "after a hand-off whose reply was dropped", t.slack())
}

func abandonReplyDropped(t *T) {
	other := t.client()
	key := t.key("abandon")
	tm := t.tamper()
	tm.dropTry.Store(1)
	tm.dropAbandon.Store(3)
	if l, err := t.clientOf(tm.backend()).Mutex(key).TryLock(t.ctx); err == nil {
		t.fatalf("TryLock whose reply was dropped: want an error, got %s", leaseText(l))
	}
	t.free(other, key, "after an acquire and three abandonments whose replies were dropped", t.slack())

	raw := t.open()
	req, g := t.holdRaw(raw, key, t.longTTL())
	for i := range 3 {
		if err := raw.Abandon(t.ctx, req); err != nil {
			t.errorf("Abandon, call %d for one attempt: want nil, got %v", i+1, err)
		}
	}
	next := t.mustLock(other.Mutex(key), "an abandoned key")
	if err := raw.Abandon(t.ctx, req); err != nil {
		t.errorf("Abandon while a successor holds: want nil, got %v", err)
	}
	t.refused(t.client().Mutex(key), "the successor's key after a late Abandon")
	if err := g.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("Release of an abandoned grant: want ErrLost, got %v", err)
	}
	if err := next.Check(t.ctx); err != nil {
		t.errorf("the successor after a late Abandon: want Check to say it holds, got %v", err)
	}
	t.mustUnlock(next, "the successor")
}

func renewReplyDropped(t *T) {
	key, ttl := t.key("renew"), t.clampTTL(3*t.ttl()) // three renewals fail, and the machine may be slow
	s, other := t.steady(ttl), t.client()
	s.tm.dropRenew.Store(3)
	l := t.mustLock(s.c.Mutex(key), "a free key")
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); t.idleFor(ttl / 10) {
		s.held(l, "a lease of which 3 renewals were executed and not answered")
		s.refused(l, other.Mutex(key), "a key whose renewals were not answered")
	}
	if n := s.tm.dropRenew.Load(); n > 0 {
		t.errorf("renewals in 2 TTLs: want more than 3, %d were still to be dropped", n)
	}
	s.unlock(l, "the holder")
	t.free(other, key, "after its release", t.slack())
}

func releaseReplyDropped(t *T) {
	key := t.key("release")
	tm := t.tamper()
	tm.dropRelease.Store(3)
	l := t.mustLock(t.clientOf(tm.backend()).Mutex(key), "a free key")
	behind := t.lockWaiting(t.ctx, t.waiter(), key)
	t.mustUnlock(l, "an unlock whose first three replies were dropped")
	next := t.granted(t.slack(), "the waiter", behind).lease
	t.refused(t.client().Mutex(key), "the successor's key after four releases of its predecessor")
	t.mustUnlock(next, "the waiter")
	t.free(t.client(), key, "after its release", t.slack())
}

func (t *T) restart() {
	if err := t.h.RestartServer(t.ctx); err != nil {
		t.fatalf("RestartServer: %v", err)
	}
}

// restartTTL outlasts a restart. Where nothing is kept the cases wait for its end.
func (t *T) restartTTL() time.Duration {
	if t.h.RestartKeepsLocks {
		return t.clampTTL(90 * time.Second) // a database on a slow disk takes its time
	}
	return t.clampTTL(10 * time.Second)
}

// reconnects is how long a client may need to find a service that is back.
const reconnects = 5 * time.Second

func restartWhileHeld(t *T) {
	key, ttl := t.key("restart"), t.restartTTL()
	c := t.client(lock.WithTTL(ttl))
	l := t.mustLock(c.Mutex(key), "a free key")
	t.restart()
	if t.h.RestartKeepsLocks {
		t.eventually(ttl/2, "Check after a restart that keeps locks", func() error {
			if err := l.Err(); err != nil {
				t.fatalf("a hold over a restart that keeps locks: want it held, got %v", err)
			}
			return l.Check(t.ctx)
		})
		t.refused(t.client().Mutex(key), "a key whose holder outlived the restart")
		t.mustUnlock(l, "the holder")
	} else {
		select {
		case <-l.Done():
		case <-time.After(ttl + t.slack()):
			t.fatalf("a lease that the service has forgotten: want it lost within its TTL of %v, it was not", ttl)
		}
		if !errors.Is(l.Err(), lock.ErrLost) {
			t.errorf("a lease that the service has forgotten: want ErrLost, got %v", l.Err())
		}
	}
	next := t.granted(ttl+reconnects+t.slack(), "the same client after a restart", t.lockRetry(c.Mutex(key))).lease
	t.mustUnlock(next, "the same client")
}

func restartWhileWaiting(t *T) {
	key, ttl := t.key("restart"), t.restartTTL()
	l := t.mustLock(t.client(lock.WithTTL(ttl)).Mutex(key), "a free key")
	got := t.lockWaiting(t.ctx, t.waiter(lock.WithTTL(ttl)), key)
	t.restart()
	if t.h.RestartKeepsLocks {
		t.eventually(reconnects+t.slack(), "Check after a restart", func() error { return l.Check(t.ctx) })
	}
	if err := l.Unlock(t.ctx); err != nil && !errors.Is(err, lock.ErrLost) {
		t.notef("Unlock after a restart: %v", err)
	}
	g := t.end(ttl+reconnects+t.slack(), "the waiter over a restart", got)
	if g.err != nil {
		t.errorf("the waiter over a restart that took less than its TTL of %v: want a grant, got %v", ttl, g.err)
		return
	}
	t.mustUnlock(g.lease, "the waiter")
}
