package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var leaseCases = []Case{
	{
		ID:     "lease/21-abandoned-holder",
		Title:  "the key of a holder that never renews is free within its TTL",
		Clause: "A grant that is not renewed ends when its TTL has passed.",
		needs:  []need{needTTL},
		run:    abandonedHolder,
	},
	{
		ID:     "lease/21-killed-holder",
		Title:  "the key of a killed process is free within its bound",
		Clause: "A killed holder's key is free within its bound: the TTL, or at once where the process's end is what frees it.",
		needs:  []need{needWorker},
		run:    killedHolder,
	},
	{
		ID:     "lease/22-renewal-outlasts-ttl",
		Title:  "a renewed lease outlasts its TTL several times",
		Clause: "Renew verifies that this grant still holds the key and extends it to ttl from now.",
		run:    renewalOutlasts,
	},
	{
		ID:     "lease/22-no-renewal-after-release",
		Title:  "nothing is renewed after its release, under churn",
		Clause: "A released grant is never renewed.",
		run:    noRenewalAfterRelease,
	},
	{
		ID:     "lease/22-renewed-together",
		Title:  "of many grants renewed together, each lost one returns ErrLost, and all others are extended",
		Clause: "RenewBatch renews each grant as Renew does. The error at i is that of the grant at i. A failed grant does not keep others from being renewed.",
		needs:  []need{needBatch},
		run:    renewedTogether,
	},
	{
		ID:     "lease/23-renewal-recovers",
		Title:  "renewals that fail and recover within the TTL are no loss",
		Clause: "Only the service's own word, or the end of the TTL, ends a lease.",
		needs:  []need{needExpiry},
		run:    renewalRecovers,
	},
	{
		ID:     "lease/23-link-recovers",
		Title:  "a cut that heals within the TTL is no loss",
		Clause: "A driver reconnects by itself, and never returns ErrLost for a failed exchange.",
		needs:  []need{needExpiry, needLink},
		run:    linkRecovers,
	},
	{
		ID:     "lease/23-renewal-never-recreates",
		Title:  "a renewal never takes a key that is free",
		Clause: "Renew never takes a key that is free; it returns ErrLost.",
		run:    neverRecreates,
	},
	{
		ID:     "lease/23-renewal-never-shortens",
		Title:  "a renewal to a shorter TTL does not shorten the grant",
		Clause: "Renew never shortens a grant: a late renewal must not cut a longer one short.",
		needs:  []need{needTTL},
		run:    neverShortens,
	},
	{
		ID:     "lease/23-renewal-after-takeover",
		Title:  "a renewal by a former holder is refused while a successor holds",
		Clause: "Renew verifies that this very grant still holds the key; else it returns ErrLost.",
		run:    renewalAfterTakeover,
	},
	{
		ID:     "lease/23-renewal-races-expiry",
		Title:  "a renewal that arrives as the grant ends never takes the key from a successor",
		Clause: "The service compares the owner and extends in one step.",
		needs:  []need{needRace},
		run:    renewalRacesExpiry,
	},
	{
		ID:     "lease/24-fixed-lease-ends",
		Title:  "without renewal a lease ends at its TTL, says so, and before a waiter is granted",
		Clause: "Until is the instant up to which the service is certain to keep a grant that is not renewed.",
		run:    fixedLeaseEnds,
	},
	{
		ID:     "lease/24-fixed-lease-in-full",
		Title:  "a lease without renewal is trusted for its TTL, also on a client that was used before, and after Extend",
		Clause: "A grant is kept, and Until is counted, from its own request, not from one for another grant.",
		run:    fixedLeaseInFull,
	},
	{
		ID:     "lease/25-ttl-range",
		Title:  "TTLs from the declared minimum to an hour are kept",
		Clause: "Every TTL within the declared bounds is accepted, and kept for that long.",
		run:    ttlRange,
	},
	{
		ID:     "lease/25-ttl-refused",
		Title:  "a TTL that is zero, negative, too short or too long is refused, and the error names it",
		Clause: "A request that can never succeed is refused with ErrInvalid, which names the field and what is accepted.",
		run:    ttlRefused,
	},
	{
		ID:     "lease/25-extreme-durations",
		Title:  "a TTL, a wait limit and a minimum hold from the least to the greatest Duration are refused by name, or the lock excludes",
		Clause: "Sums of durations do not overflow, and what is out of bounds is refused with ErrInvalid, which names it.",
		run:    extremeDurations,
	},
	{
		ID:     "lease/25-least-ttl",
		Title:  "a grant of the least TTL is over soon after it",
		Clause: "Every TTL within the declared bounds is accepted, and kept for that long.",
		needs:  []need{needTTL},
		run:    leastTTL,
	},
	{
		ID:     "lease/26-client-clock",
		Title:  "a client whose clock is an hour wrong, either way, changes nothing",
		Clause: "Time is the service's; a client only measures durations.",
		needs:  []need{needClockWorker},
		run:    clientClock,
	},
}

func abandonedHolder(t *T) {
	key, ttl := t.key("abandoned"), t.clampTTL(3*time.Second) // a part of it is longer than a busy machine's pauses
	b, other := t.open(), t.open()
	start := time.Now()
	_, g := t.holdRaw(b, key, ttl)
	until := g.Until()
	if until.IsZero() {
		until = start.Add(ttl)
	}
	t.eventually(ttl+t.slack(), "a new client gets the key of a holder that does not renew", func() error {
		req := request(key, t.longTTL())
		g2, err := other.TryAcquire(t.ctx, req)
		if err != nil {
			return err
		}
		if at := time.Now(); at.Before(until) {
			t.errorf("grant to a new client: want none before the holder's Until, it came %v earlier", until.Sub(at))
		}
		return g2.Release(t.ctx)
	})
	if err := g.Renew(t.ctx, ttl); !errors.Is(err, backend.ErrLost) {
		t.errorf("Renew after the TTL: want ErrLost, got %v", err)
	}
}

func killedHolder(t *T) {
	key, ttl := t.key("killed"), t.clampTTL(3*time.Second) // long enough to be kept by a busy machine until the kill
	p, c := t.worker(), t.client()
	p.lock(key, ttl)
	p.excludes(c.Mutex(key), "a key that another process holds")
	p.kill()
	t.free(c, key, "after the holder's process was killed", t.deathBound(ttl))
}

func renewalOutlasts(t *T) {
	key, ttl := t.key("outlasts"), t.ttl()
	s, other := t.steady(ttl), t.client()
	l := t.mustLock(s.c.Mutex(key), "a free key")
	token, _ := l.Token()
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); {
		s.held(l, fmt.Sprintf("a renewed lease within 3 TTLs of %v", ttl))
		s.refused(l, other.Mutex(key), "a key whose holder renews")
		t.idleFor(ttl / 20)
	}
	if now, _ := l.Token(); now != token {
		t.errorf("token of a renewed lease: want it constant, was %d, got %d", token, now)
	}
	s.unlock(l, "the holder")
	t.free(other, key, "after its release", t.slack())
}

func noRenewalAfterRelease(t *T) {
	ttl := t.clampTTL(300 * time.Millisecond)
	tm := t.tamper()
	c, other := t.clientOf(tm.backend(), lock.WithTTL(ttl)), t.client()
	key := t.key("churn")
	for i := range t.rounds(25, 400) {
		l := t.granted(t.slack(), fmt.Sprintf("round %d", i), t.lockRetry(c.Mutex(key))).lease
		t.idleFor(ttl / 3 * time.Duration(i%10) / 8) // releases around the time of a renewal
		// With a TTL so short a slow service is too late to acknowledge, which is not what is judged here.
		if err := l.Unlock(t.ctx); err != nil && !errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrUncertain) {
			t.fatalf("round %d: Unlock: want nil, got %v", i, err)
		}
		t.free(other, key, fmt.Sprintf("round %d", i), ttl+t.slack())
	}
	t.idleFor(2 * ttl)
	if n := tm.late.Load(); n > 0 {
		t.errorf("renewals begun after the release was acknowledged: want 0, were %d", n)
	}
	t.free(other, key, "long after the last release", t.slack())
}

func renewalRecovers(t *T) {
	key, ttl := t.key("recovers"), t.clampTTL(4*t.ttl())
	s, other := t.steady(ttl), t.client()
	l := t.mustLock(s.c.Mutex(key), "a free key")
	for range 2 {
		before := l.Expires()
		s.tm.failRenew.Store(true)
		t.idleFor(2 * ttl / 5)
		s.tm.failRenew.Store(false)
		t.eventually(ttl, "a renewal after two fifths of a TTL of failures", func() error {
			s.held(l, "a lease whose renewals failed for two fifths of its TTL")
			if !l.Expires().After(before.Add(ttl / 4)) {
				return errors.New("not renewed yet")
			}
			return nil
		})
		s.refused(l, other.Mutex(key), "a key whose holder's renewals had failed")
	}
	s.unlock(l, "the holder")
}

func linkRecovers(t *T) {
	b, link := t.faulty()
	key, ttl := t.key("link"), t.clampTTL(10*t.ttl()) // most of it is left when a busy machine connects again
	l := t.mustLock(t.clientOf(b, lock.WithTTL(ttl)).Mutex(key), "a free key")
	other := t.client()
	for _, fault := range []func(){link.Cut, link.Blackhole} {
		fault()
		ctx, cancel := context.WithTimeout(t.ctx, ttl/10)
		if err := l.Check(ctx); err == nil || errors.Is(err, lock.ErrLost) {
			t.errorf("Check while the link fails: want an error that is no loss, got %v", err)
		}
		<-ctx.Done()
		cancel()
		link.Heal()
		t.eventually(ttl, "a Check after the link has healed", func() error {
			if err := l.Err(); err != nil {
				t.fatalf("a lease whose link failed for a tenth of its TTL: want it held, got %v", err)
			}
			return l.Check(t.ctx)
		})
		t.refused(other.Mutex(key), "a key whose holder's link had failed")
	}
	t.mustUnlock(l, "the holder")
}

func neverShortens(t *T) {
	key, ttl := t.key("shorter"), t.ttl()
	_, g := t.holdRaw(t.open(), key, t.longTTL())
	if err := g.Renew(t.ctx, ttl); err != nil {
		t.fatalf("Renew of a grant of %v to %v: want nil, got %v", t.longTTL(), ttl, err)
	}
	t.idleFor(ttl + ttl/4)
	t.refused(t.client().Mutex(key), "a key whose grant was renewed to less than it had")
	if err := g.Release(t.ctx); err != nil {
		t.errorf("Release after a renewal to less: want nil, got %v", err)
	}
}

func neverRecreates(t *T) {
	raw, other := t.open(), t.client()
	gone := func(how, key string, g backend.Grant) {
		if err := g.Renew(t.ctx, t.longTTL()); !errors.Is(err, backend.ErrLost) {
			t.errorf("Renew after %s: want ErrLost, got %v", how, err)
		}
		t.free(other, key, "after "+how+" and a renewal of the old grant", t.slack())
	}
	key := t.key("released")
	_, g := t.holdRaw(raw, key, t.longTTL())
	if err := g.Release(t.ctx); err != nil {
		t.fatalf("Release by the holder: want nil, got %v", err)
	}
	gone("a release", key, g)

	if _, ok := t.probe.(backend.Breaker); ok {
		key = t.key("broken")
		_, g = t.holdRaw(raw, key, t.longTTL())
		if removed, err := raw.(backend.Breaker).Break(t.ctx, key, ""); err == nil && removed != nil {
			gone("a break", key, g)
		}
	}
	if t.caps.Loss == backend.LossTTL {
		key = t.key("expired")
		_, g = t.holdRaw(raw, key, t.ttl())
		t.free(other, key, "a key whose holder does not renew", t.ttl()+t.slack())
		gone("an expiry", key, g)
	}
	if t.h.DestroyState != nil {
		key = t.key("destroyed")
		_, g = t.holdRaw(raw, key, t.longTTL())
		if err := t.h.DestroyState(t.ctx, key); err != nil {
			t.fatalf("DestroyState: %v", err)
		}
		gone("the destruction of its state", key, g)
	}
}

func renewalAfterTakeover(t *T) {
	raw, other := t.open(), t.open()
	takenOver := func(how, key string, g backend.Grant) {
		for client, b := range map[string]backend.Backend{"the same client": raw, "another client": other} {
			var next backend.Grant
			t.eventually(t.ttl()+t.slack(), "the key after "+how, func() (err error) {
				next, err = b.TryAcquire(t.ctx, request(key, t.longTTL()))
				return err
			})
			if err := g.Renew(t.ctx, t.longTTL()); !errors.Is(err, backend.ErrLost) {
				t.errorf("Renew after %s, while a successor of %s holds: want ErrLost, got %v", how, client, err)
			}
			if err := next.Renew(t.ctx, t.longTTL()); err != nil {
				t.errorf("Renew by the successor after the former holder's: want nil, got %v", err)
			}
			t.tryRefused(t.open(), request(key, t.longTTL()), "the successor's key after the former holder's Renew")
			if err := next.Release(t.ctx); err != nil {
				t.errorf("Release by the successor: want nil, got %v", err)
			}
		}
	}
	key := t.key("released")
	_, g := t.holdRaw(raw, key, t.longTTL())
	if err := g.Release(t.ctx); err != nil {
		t.fatalf("Release by the holder: want nil, got %v", err)
	}
	takenOver("a release", key, g)
	if t.caps.Loss == backend.LossTTL {
		key = t.key("expired")
		_, g = t.holdRaw(raw, key, t.ttl())
		takenOver("an expiry", key, g)
	}
}

func fixedLeaseEnds(t *T) {
	key, ttl := t.key("fixed"), t.lossTTL()
	late := t.lateness()
	c, w := t.client(), t.waiter()
	t.endsAfter(ttl, key)
	start := time.Now()
	l := t.mustLock(c.Mutex(key, lock.WithTTL(ttl), lock.WithoutRenewal()), "a free key")
	if e := l.Expires(); e.IsZero() || e.After(time.Now().Add(ttl)) {
		t.errorf("Expires of a lease without renewal: want it within its TTL of %v, got %v from now", ttl, time.Until(e))
	}
	got := t.lockWaiting(t.ctx, w, key)
	at := t.signalled(l, ttl+t.slack(), fmt.Sprintf("a lease of %v without renewal", ttl))
	if early := ttl/2 - at.Sub(start); early > 0 {
		t.errorf("a lease of %v: want it to last at least half of that, it lasted %v", ttl, at.Sub(start))
	}
	next := t.granted(ttl+t.slack(), "the waiter behind a lease without renewal", got)
	t.before(l, at, next, "the end of the lease", late)
	t.mustUnlock(next.lease, "the waiter")

	l = t.mustLock(c.Mutex(key, lock.WithTTL(t.longTTL()), lock.WithoutRenewal()), "a key that was freed")
	if err := l.Extend(t.ctx, ttl); err != nil {
		t.fatalf("Extend of a lease of %v to %v: want nil, got %v", t.longTTL(), ttl, err)
	}
	if left := time.Until(l.Expires()); left > ttl {
		t.errorf("Expires of a lease that was extended to %v, less than it had: want it within that, got %v from now", ttl, left)
	}
	_ = l.Unlock(t.ctx) // it may be over: it was to be short
}
