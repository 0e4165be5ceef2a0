package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// These cases show that a holder knows of its loss before a successor is granted.

// lossTTL is the TTL where a busy machine must not be late.
func (t *T) lossTTL() time.Duration { return t.clampTTL(2 * time.Second) }

// lossBefore makes a client hold, disturbs it, and checks that it knows of its loss
// before a waiter of another client is granted. With afterWait the holder gets its
// grant by hand-off.
func (t *T) lossBefore(b backend.Backend, afterWait bool, disturb, heal func()) {
	key, ttl := t.key("loss"), t.lossTTL()
	late := t.lateness()
	w := t.waiterOf(b, lock.WithTTL(ttl))
	var l *lock.Lease
	if afterWait {
		first := t.mustLock(t.client().Mutex(key), "a free key")
		got := t.lockWaiting(t.ctx, w, key)
		t.mustUnlock(first, "the first holder")
		disturb() // the grant may be on its way
		l = t.granted(t.slack(), "the waiter", got).lease
	} else {
		l = t.mustLock(w.c.Mutex(key), "a free key")
		t.idleFor(ttl / 2) // a renewal or two
		disturb()
	}
	next := t.lockAsync(t.ctx, t.client().Mutex(key))
	at := t.signalled(l, ttl+t.slack(), fmt.Sprintf("a lease of TTL %v that cannot be renewed", ttl))
	if heal != nil {
		heal()
	}
	// a session may end up to a TTL after its last sign of life arrived
	got := t.granted(2*ttl+t.slack(), "the successor of a holder that is out of reach", next)
	t.before(l, at, got, "the loss", late)
	t.mustUnlock(got.lease, "the successor")
}

// faulty opens a client behind a link.
func (t *T) faulty() (backend.Backend, Link) {
	b, link, err := t.h.OpenFaulty(t.ctx)
	if err != nil {
		t.fatalf("OpenFaulty: %v", err)
	}
	t.later(func(ctx context.Context) { _ = b.Close(ctx) })
	t.later(func(context.Context) { link.Heal() }) // runs before the client is closed
	return b, link
}

func (t *T) linkLoss(fault func(Link)) {
	b, link := t.faulty()
	t.lossBefore(b, false, func() { fault(link) }, nil)
}

func slowReceipt(t *T) {
	b, link := t.faulty()
	key, ttl := t.key("slow"), t.lossTTL()
	late := t.lateness()
	w := t.waiterOf(b, lock.WithTTL(ttl), lock.WithoutRenewal())
	first := t.mustLock(t.client().Mutex(key), "a free key")
	got := t.lockWaiting(t.ctx, w, key)
	link.Delay(ttl / 3)
	t.mustUnlock(first, "the first holder")
	g := t.end(2*ttl+t.slack(), "the waiter behind a slow link", got)
	link.Delay(0)
	next := t.lockAsync(t.ctx, t.client().Mutex(key))
	if g.err != nil {
		t.notef("the waiter behind a slow link: %v", g.err)
		t.mustUnlock(t.granted(2*ttl+t.slack(), "the next", next).lease, "the next")
		return
	}
	at := t.signalled(g.lease, 2*ttl+t.slack(), fmt.Sprintf("a lease of %v without renewal", ttl))
	n := t.granted(2*ttl+t.slack(), "the successor", next)
	t.before(g.lease, at, n, "the end of a lease that was pushed over a slow link", late)
	t.mustUnlock(n.lease, "the successor")
}

func slowReplies(t *T) {
	b, link := t.faulty()
	const oneWay = 150 * time.Millisecond
	key, ttl := t.key("slow-replies"), t.longTTL()
	counts := func(what string, g backend.Grant) {
		until := g.Until()
		if most := time.Now().Add(ttl - 2*oneWay); until.After(most) {
			t.errorf("Until after %s for %v over a link of %v each way: want it counted from the sending, it is %v too late", what, ttl, oneWay, until.Sub(most))
		}
	}
	_, warm := t.holdRaw(b, key, ttl) // connections are open now
	if err := warm.Release(t.ctx); err != nil {
		t.fatalf("Release by the holder: want nil, got %v", err)
	}
	link.Delay(oneWay)
	defer link.Delay(0)
	_, g := t.holdRaw(b, key, ttl)
	counts("a grant", g)
	if err := g.Renew(t.ctx, ttl); err != nil {
		t.fatalf("Renew by the holder: want nil, got %v", err)
	}
	counts("a renewal", g)
	if err := g.Release(t.ctx); err != nil {
		t.errorf("Release by the holder: want nil, got %v", err)
	}
}

func hang(t *T) {
	key, ttl := t.key("hang"), t.lossTTL()
	late := t.lateness()
	c := t.client(lock.WithTTL(ttl))
	l := t.mustLock(c.Mutex(key), "a free key")
	w := t.waiter(lock.WithTTL(ttl))
	next := t.lockWaiting(t.ctx, w, key)
	done := t.mustLock(c.Mutex(t.key("hang-done")), "a free key")
	if err := t.h.StopServer(t.ctx); err != nil {
		t.fatalf("StopServer: %v", err)
	}
	resumed := false
	resume := func(ctx context.Context) {
		if !resumed {
			resumed = true
			if err := t.h.ResumeServer(ctx); err != nil {
				t.errorf("ResumeServer: %v", err)
			}
		}
	}
	t.later(resume)
	unlocked := make(chan error, 1)
	live := done.Err() == nil
	go func() { unlocked <- done.Unlock(t.ctx) }()
	at := t.signalled(l, ttl+t.slack(), fmt.Sprintf("a lease of TTL %v whose service hangs", ttl))
	resume(t.ctx)
	if err := <-unlocked; live && err != nil && !errors.Is(err, lock.ErrUncertain) {
		t.errorf("Unlock under a live lease while the service hangs: want nil or ErrUncertain, got %v", err)
	}
	got := t.end(2*ttl+t.slack(), "the waiter when the service goes on", next)
	if got.err != nil {
		// the service was silent for about a TTL, which is as long as a wait rides out
		t.notef("the waiter gave up: %v", got.err)
		got = t.granted(2*ttl+t.slack(), "a new client when the service goes on", t.lockAsync(t.ctx, w.c.Mutex(key)))
	}
	t.before(l, at, got, "the loss", late)
	if err := got.lease.Unlock(t.ctx); err != nil && !errors.Is(err, lock.ErrLost) { // its session was silent as long
		t.errorf("the successor: want Unlock to return nil or ErrLost, got %v", err)
	}
}
