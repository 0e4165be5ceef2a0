package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var releaseCases = []Case{
	{
		ID:     "release/18-second-unlock",
		Title:  "a second unlock returns the result of the first and never frees the lock of a successor",
		Clause: "Release frees the key if this very grant holds it, and never another client's; it is idempotent.",
		run:    secondUnlock,
	},
	{
		ID:     "release/18-not-the-owner",
		Title:  "an attempt that does not hold cannot free the key",
		Clause: "Abandon and Release concern the attempt of their owner id and no other.",
		run:    notTheOwner,
	},
	{
		ID:     "release/19-after-expiry",
		Title:  "an unlock after the TTL has passed is reported as lost",
		Clause: "Release returns ErrLost if the key was not, or is no longer, ours.",
		needs:  []need{needTTL},
		run:    unlockAfterExpiry,
	},
	{
		ID:     "release/19-after-takeover",
		Title:  "an unlock after another client has taken the key is reported as lost and changes nothing",
		Clause: "Release frees the key if this very grant holds it, and never another client's.",
		needs:  []need{needTTL},
		run:    unlockAfterTakeover,
	},
	{
		ID:     "release/19-retried",
		Title:  "an unlock whose first reply was dropped succeeds and does not affect a new holder",
		Clause: "Release called again after an error completes, and never frees a successor.",
		run:    unlockRetried,
	},
	{
		ID:     "release/19-races-expiry",
		Title:  "a release that arrives as the grant ends never frees the key of a successor",
		Clause: "The service compares the owner and frees the key in one step.",
		needs:  []need{needRace},
		run:    releaseRacesExpiry,
	},
	{
		ID:     "release/20-break-old-holder-learns",
		Title:  "a broken lease learns of it at its next renewal or check; its unlock changes nothing",
		Clause: "After Break the old grant answers Renew and Release with ErrLost.",
		needs:  []need{needBreak},
		run:    breakOldHolder,
	},
	{
		ID:     "release/20-break-pushed",
		Title:  "the backend notifies a holder whose lock is broken at once",
		Clause: "With PushesLoss declared OnLost is called when a grant is broken.",
		needs: []need{needBreak, {"PushesLoss", func(t *T) (Status, string) {
			if t.caps.PushesLoss {
				return "", ""
			}
			return NotDeclared, "the driver does not declare PushesLoss"
		}}},
		run: breakPushed,
	},
	{
		ID:     "release/20-break-free-key",
		Title:  "a break of a free key returns no holder and changes nothing",
		Clause: "Break returns the holder it removed, or nil if the key was free.",
		needs:  []need{needBreak},
		run: func(t *T) {
			c, key := t.client(), t.key("break-free")
			if removed, err := c.Break(t.ctx, key); err != nil || removed != nil {
				t.errorf("Break of a free key: want no holder and a nil error, got %+v, %v", removed, err)
			}
			t.free(c, key, "after the break of a free key", t.slack())
		},
	},
	{
		ID:     "release/20-break-earlier-holder",
		Title:  "a break that names an earlier holder breaks nothing and returns the present one",
		Clause: "If the key has another holder than Break names, Break changes nothing and returns a LockedError with that holder.",
		needs:  []need{needBreak},
		run:    breakEarlierHolder,
	},
}

func secondUnlock(t *T) {
	c1, c2 := t.client(), t.client()
	key := t.key("twice")
	l := t.mustLock(c1.Mutex(key), "a free key")
	t.mustUnlock(l, "the first unlock")
	next := t.mustLock(c2.Mutex(key), "a released key")
	if err := l.Unlock(t.ctx); err != nil {
		t.errorf("a second Unlock: want what the first returned, nil, got %v", err)
	}
	t.refused(c1.Mutex(key), "the successor's key after the predecessor's second unlock")
	t.mustUnlock(next, "the successor")

	// The same for the driver itself, whose grant does not remember.
	raw := t.open()
	_, g := t.holdRaw(raw, key, t.longTTL())
	if err := g.Release(t.ctx); err != nil {
		t.fatalf("raw Release by the holder: want nil, got %v", err)
	}
	if err := g.Release(t.ctx); err != nil && !errors.Is(err, backend.ErrLost) {
		t.errorf("a second raw Release: want nil or ErrLost, got %v", err)
	}
	succ := t.mustLock(c2.Mutex(key), "a key that was released twice")
	if err := g.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("a raw Release while a successor holds: want ErrLost, got %v", err)
	}
	t.refused(c1.Mutex(key), "the successor's key after the predecessor's third raw Release")
	// The successor may be of the same client, and even of the same process.
	t.mustUnlock(succ, "the successor")
	_, g2 := t.holdRaw(raw, key, t.longTTL())
	if err := g.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("a raw Release while a successor of the same client holds: want ErrLost, got %v", err)
	}
	t.refused(c1.Mutex(key), "the key of a successor of the same client")
	if err := g2.Release(t.ctx); err != nil {
		t.errorf("raw Release by the successor: want nil, got %v", err)
	}
}

func notTheOwner(t *T) {
	raw1, raw2, other := t.open(), t.open(), t.client()
	key := t.key("not-owner")
	req, g := t.holdRaw(raw1, key, t.longTTL())
	for name, b := range map[string]backend.Backend{"the same": raw1, "another": raw2} {
		stranger := request(key, t.longTTL())
		if err := b.Abandon(t.ctx, stranger); err != nil {
			t.errorf("Abandon by %s client of an attempt that never was: want nil, got %v", name, err)
		}
		stranger.Owner = req.Owner[:len(req.Owner)-1] + flip(req.Owner[len(req.Owner)-1])
		if err := b.Abandon(t.ctx, stranger); err != nil {
			t.errorf("Abandon by %s client with an owner id like the holder's: want nil, got %v", name, err)
		}
		t.refused(other.Mutex(key), "a held key after strangers were abandoned")
	}
	if err := g.Renew(t.ctx, t.longTTL()); err != nil {
		t.errorf("Renew by the holder after strangers were abandoned: want nil, got %v", err)
	}
	if err := g.Release(t.ctx); err != nil {
		t.errorf("Release by the holder: want nil, got %v", err)
	}
}

// lapse returns a lease that was not renewed and is over.
func (t *T) lapse(c *lock.Client, key string) *lock.Lease {
	ttl := t.ttl()
	l := t.mustLock(c.Mutex(key, lock.WithTTL(ttl), lock.WithoutRenewal()), "a free key")
	select {
	case <-l.Done():
	case <-time.After(ttl + t.slack()):
		t.fatalf("a lease without renewal: want it over within its TTL of %v, it was not", ttl)
	}
	return l
}

func unlockAfterExpiry(t *T) {
	key := t.key("expired")
	l := t.lapse(t.client(), key)
	if err := l.Unlock(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.errorf("Unlock after the TTL: want ErrLost, got %v", err)
	}
	raw := t.open()
	rawKey := t.key("expired-raw")
	_, g := t.holdRaw(raw, rawKey, t.ttl())
	// The service frees by its own clock: the key is free when a new client gets it.
	t.free(t.client(), rawKey, "a key whose holder does not renew", t.ttl()+t.slack())
	if err := g.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("raw Release after the TTL: want ErrLost, got %v", err)
	}
	t.free(t.client(), key, "an expired key", t.ttl()+t.slack())
}

func unlockAfterTakeover(t *T) {
	key := t.key("takeover")
	c1, c2 := t.client(), t.client()
	l := t.lapse(c1, key)
	next := t.granted(t.ttl()+t.slack(), "an expired key", t.lockAsync(t.ctx, c2.Mutex(key))).lease
	if err := l.Unlock(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.errorf("Unlock after a takeover: want ErrLost, got %v", err)
	}
	t.refused(c1.Mutex(key), "the new holder's key after the old one's Unlock")
	t.mustUnlock(next, "the new holder")

	raw := t.open()
	key = t.key("takeover-raw")
	_, g := t.holdRaw(raw, key, t.ttl())
	next = t.granted(t.ttl()+t.slack(), "an expired key", t.lockAsync(t.ctx, c2.Mutex(key))).lease
	if err := g.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("raw Release after a takeover: want ErrLost, got %v", err)
	}
	t.refused(c1.Mutex(key), "the new holder's key after the old one's raw Release")
	if err := next.Check(t.ctx); err != nil {
		t.errorf("the new holder: want Check to say it holds, got %v", err)
	}
	t.mustUnlock(next, "the new holder")
}

func unlockRetried(t *T) {
	other := t.client()
	for _, successor := range []bool{false, true} {
		key := t.key("retried")
		tm := t.tamper()
		c := t.clientOf(tm.backend())
		l := t.mustLock(c.Mutex(key), "a free key")
		var next *lock.Lease
		if successor {
			tm.afterRelease = func() {
				var err error
				if next, err = other.Mutex(key).Lock(t.ctx); err != nil {
					t.errorf("a successor after a release whose reply was dropped: want a grant, got %v", err)
				}
			}
		}
		tm.dropRelease.Store(1)
		t.mustUnlock(l, "an unlock whose first reply was dropped")
		if n := tm.releases.Load(); n < 2 { // a slow one is sent once more
			t.errorf("releases sent: want 2, got %d", n)
		}
		if next != nil {
			if err := next.Check(t.ctx); err != nil {
				t.errorf("the successor after the retried release: want Check to say it holds, got %v", err)
			}
			t.refused(c.Mutex(key), "the successor's key after the retried release")
			t.mustUnlock(next, "the successor")
		}
		t.free(other, key, "after a retried unlock", t.slack())
	}
}

func breakOldHolder(t *T) {
	c1, c2 := t.client(), t.client()
	key := t.key("break")
	old := t.mustLock(c1.Mutex(key), "a free key")
	removed, err := c2.Break(t.ctx, key)
	if err != nil || removed == nil {
		t.fatalf("Break of a held key: want its holder, got %+v, %v", removed, err)
	}
	next := t.mustLock(c2.Mutex(key), "a broken key")
	if err := old.Check(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.errorf("Check of a broken lease: want ErrLost, got %v", err)
	}
	if cause := context.Cause(old.Context()); !errors.Is(cause, lock.ErrLost) {
		t.errorf("the context of a broken lease after a Check: want its cause to match ErrLost, got %v", cause)
	}
	if err := old.Unlock(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.errorf("Unlock of a broken lease: want ErrLost, got %v", err)
	}
	t.refused(c1.Mutex(key), "the successor's key after the broken lease's Unlock")

	t.mustUnlock(next, "the successor")

	raw := t.open()
	_, g := t.holdRaw(raw, key, t.longTTL())
	if _, err := c2.Break(t.ctx, key); err != nil {
		t.fatalf("Break of a held key: want nil, got %v", err)
	}
	next = t.mustLock(c2.Mutex(key), "a broken key")
	if err := g.Renew(t.ctx, t.longTTL()); !errors.Is(err, backend.ErrLost) {
		t.errorf("raw Renew of a broken grant: want ErrLost, got %v", err)
	}
	if err := g.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("raw Release of a broken grant: want ErrLost, got %v", err)
	}
	t.refused(c1.Mutex(key), "the successor's key after the broken grant's Renew and Release")
	t.mustUnlock(next, "the successor")
}

func breakEarlierHolder(t *T) {
	b, admin, key := t.open(), t.client(), t.key("break-earlier")
	earlier, g := t.holdRaw(b, key, t.longTTL())
	if err := g.Release(t.ctx); err != nil {
		t.fatalf("Release by the holder: want nil, got %v", err)
	}
	present, g := t.holdRaw(b, key, t.longTTL())
	removed, err := admin.Break(t.ctx, key, lock.IfHeldBy(earlier.Owner))
	var locked *lock.LockedError
	if removed != nil || !errors.As(err, &locked) {
		t.errorf("Break that names an earlier holder: want no holder and a LockedError, got %+v, %v", removed, err)
	} else if locked.Holder.Owner != present.Owner ||
		len(t.o.clients) == 0 && locked.Holder.Token != g.Token() { // with local hand-off tokens of clients are others
		t.errorf("Break that names an earlier holder: want the present one, owner %s and token %d, in its error, got %+v", present.Owner, g.Token(), locked.Holder)
	}
	if err := g.Renew(t.ctx, t.longTTL()); err != nil {
		t.errorf("Renew after a break that named an earlier holder: want nil, got %v", err)
	}
	t.refused(admin.Mutex(key), "a key after a break that named an earlier holder")

	removed, err = admin.Break(t.ctx, key, lock.IfHeldBy(present.Owner))
	if err != nil || removed == nil || removed.Owner != present.Owner {
		t.errorf("Break that names the holder: want it, owner %s, and nil, got %+v, %v", present.Owner, removed, err)
	}
	if err := g.Renew(t.ctx, t.longTTL()); !errors.Is(err, backend.ErrLost) {
		t.errorf("Renew after a break that named the holder: want ErrLost, got %v", err)
	}
	if removed, err = admin.Break(t.ctx, key, lock.IfHeldBy(present.Owner)); err != nil || removed != nil {
		t.errorf("Break of a free key that names its last holder: want no holder and a nil error, got %+v, %v", removed, err)
	}
	t.free(admin, key, "after a break that named the holder", t.slack())
}

func breakPushed(t *T) {
	key := t.key("pushed")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	if _, err := t.client().Break(t.ctx, key); err != nil {
		t.fatalf("Break of a held key: want nil, got %v", err)
	}
	select {
	case <-l.Done():
		if err := l.Err(); !errors.Is(err, lock.ErrLost) {
			t.errorf("a broken lease: want ErrLost, got %v", err)
		}
	case <-time.After(t.slack()):
		t.errorf("a broken lease of a driver that declares PushesLoss: want it notified within %v, it was not (its next renewal is in %v)", t.slack(), t.longTTL()/3)
	}
	// The same before Acquire returned: OnLost may come early.
	raw := t.open()
	req := request(t.key("pushed-raw"), t.longTTL())
	lost := make(chan struct{}, 16)
	req.OnLost = func(error) { lost <- struct{}{} }
	t.try(raw, req, "a free key")
	if _, err := t.client().Break(t.ctx, req.Key); err != nil {
		t.fatalf("Break of a held key: want nil, got %v", err)
	}
	select {
	case <-lost:
	case <-time.After(t.slack()):
		t.errorf("OnLost of a broken grant: want it called within %v, it was not", t.slack())
	}
}
