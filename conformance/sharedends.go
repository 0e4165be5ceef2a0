package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var sharedEndCases = []Case{
	{
		ID:     "shared/46-expiry",
		Title:  "one of several holders expires: its share is free in its time, and the others keep theirs",
		Clause: "The service keeps each grant of a key by its own TTL.",
		needs:  []need{needShared, needPermits, needTTL},
		run:    shareExpires,
	},
	{
		ID:     "shared/46-renewed",
		Title:  "readers that renew keep a writer out for several TTLs, and lose nothing",
		Clause: "Renew extends this very grant.",
		needs:  []need{needShared, needExpiry},
		run:    readersRenew,
	},
	{
		ID:     "shared/46-killed",
		Title:  "one of several holders is killed: its share is free within its bound, and the others keep theirs",
		Clause: "A killed holder's share is free within its bound.",
		needs:  []need{needShared, needPermits, needWorker},
		run:    shareHolderKilled,
	},
	{
		ID:     "shared/46-broken",
		Title:  "Break of one of several holders frees its share alone; Break of all frees the key",
		Clause: "Break ends the grant of owner on key, or all grants of key if owner is empty.",
		needs:  []need{needShared, needPermits, needBreak},
		run:    shareBroken,
	},
	{
		ID:     "shared/47-sent-twice",
		Title:  "a request for a share that is sent twice is granted once",
		Clause: "TryAcquire is idempotent on Owner: sent twice, it is granted once.",
		needs:  []need{needPermits},
		run:    shareTwice,
	},
	{
		ID:     "shared/47-reply-dropped",
		Title:  "a request for a share whose reply was dropped leaves no share behind",
		Clause: "Abandon makes sure that nothing remains of an attempt whose outcome is not known.",
		needs:  []need{needShared, needPermits},
		run:    shareReplyDropped,
	},
	{
		ID:     "shared/47-abandoned",
		Title:  "an abandoned share is free, and the other shares of the key stay",
		Clause: "Abandon makes sure that nothing remains of the attempt, and touches no other.",
		needs:  []need{needPermits},
		run:    shareAbandoned,
	},
	{
		ID:     "shared/47-cancel-races-grant",
		Title:  "a cancel that races with the grant of a share, whatever the delay: afterwards the key is free",
		Clause: "After Abandon a grant of that attempt, if there was one, is released.",
		needs:  []need{needShared, needPermits, needQueue},
		alone:  true,
		run:    cancelRacesShare,
	},
}

// tryShare makes a raw attempt for a share that must be granted.
func (t *T) tryShare(b backend.Backend, key string, ttl time.Duration, s lock.Share) (backend.Request, backend.Grant) {
	req := request(key, ttl)
	req.Share = s
	t.endsAfter(ttl, key)
	return req, t.try(b, req, "a share that is free")
}

func shareExpires(t *T) {
	key, ttl := t.key("share-expires"), t.ttl()
	s := permits(1, 2)
	raw, other, third := t.open(), t.open(), t.client() // opening takes a part of the TTL
	ws := []*waiter{t.waiter(), t.waiter()}
	_, long := t.tryShare(other, key, t.longTTL(), s)
	_, short := t.tryShare(raw, key, ttl, s)
	var got []<-chan locked
	if _, ok := t.probe.(backend.Waiter); ok {
		got = t.queueSharesOf(ws, key, s, s)
	} else {
		got = append(got, t.lockAsync(t.ctx, shareOf(third, key, s)))
	}
	next := t.granted(t.deathBound(ttl), "a permit of a holder that does not renew", got[0])
	if before := short.Until().Sub(next.at); before > 0 {
		t.errorf("a permit of a holder that does not renew: want it kept until its TTL has passed, it was granted %v before", before)
	}
	t.stillWaits("beside two holders", got[1:]...)
	if err := short.Renew(t.ctx, ttl); !errors.Is(err, backend.ErrLost) {
		t.errorf("Renew of the permit that expired: want ErrLost, got %v", err)
	}
	if err := short.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
		t.errorf("Release of the permit that expired: want ErrLost, got %v", err)
	}
	if err := long.Renew(t.ctx, t.longTTL()); err != nil {
		t.errorf("Renew of the other permit: want nil, got %v", err)
	}
	t.refused(shareOf(third, key, s), "a third permit of two")
	if err := long.Release(t.ctx); err != nil {
		t.errorf("Release of the other permit: want nil, got %v", err)
	}
	t.mustUnlock(next.lease, "the successor")
	for _, ch := range got[1:] {
		t.mustUnlock(t.granted(t.slack(), "the second waiter", ch).lease, "the second waiter")
	}
	t.free(t.client(), key, "after an expiry", t.slack())

	// A writer waits for the last of two readers, which has the longer TTL.
	key = t.key("readers-expire")
	_, first := t.tryShare(raw, key, ttl/2, backend.Reader)
	_, last := t.tryShare(raw, key, ttl, backend.Reader)
	writer := t.granted(t.deathBound(ttl), "a writer behind two readers that do not renew", t.lockAsync(t.ctx, third.Mutex(key)))
	for _, g := range []backend.Grant{first, last} {
		if before := g.Until().Sub(writer.at); before > 0 {
			t.errorf("a reader that does not renew: want it kept until its TTL has passed, a writer was granted %v before", before)
		}
	}
	t.mustUnlock(writer.lease, "the writer")
}

func readersRenew(t *T) {
	key, ttl := t.key("readers-renew"), t.clampTTL(2*t.ttl())
	holders, readers := make([]*steady, 3), make([]*lock.Lease, 3)
	for i := range readers {
		holders[i] = t.steady(ttl)
		readers[i] = t.mustLock(holders[i].c.RWMutex(key).RLocker(), "a reader")
	}
	w := t.lockAsync(t.ctx, t.client().Mutex(key))
	t.idleFor(2*ttl + ttl/2)
	for i, r := range readers {
		holders[i].held(r, fmt.Sprintf("reader %d, which renews", i))
	}
	t.stillWaits("beside readers that renew", w)
	for i, r := range readers {
		holders[i].unlock(r, fmt.Sprintf("reader %d", i))
	}
	t.mustUnlock(t.granted(t.slack()+ttl, "the writer", w).lease, "the writer")
}

func shareHolderKilled(t *T) {
	for _, s := range []lock.Share{backend.Reader, permits(2, 3)} {
		key, ttl := t.key("share-killed"), t.lossTTL()
		p := t.worker()
		p.lockShare(key, ttl, s)
		other := s
		if s.Capacity > 0 {
			other = permits(1, 3)
		}
		l := t.mustLock(shareOf(t.client(), key, other), "a share beside that of another process")
		want, wait := lock.Share{}, lock.Share{} // a writer that comes when the reader has left
		if s.Capacity > 0 {
			want, wait = permits(2, 3), permits(1, 3)
		}
		p.excludes(shareOf(t.client(), key, want), "what another process holds")
		p.kill()
		if s.Capacity == 0 {
			t.mustUnlock(l, "the reader that was not killed")
		}
		c := t.client()
		got := t.granted(t.deathBound(2*ttl), "the share of a killed process", t.lockRetry(shareOf(c, key, want))).lease
		if s.Capacity > 0 {
			if err := l.Check(t.ctx); err != nil {
				t.errorf("the holder that was not killed: want it to hold, got %v", err)
			}
			t.refused(shareOf(c, key, wait), "a permit where all are held")
			t.mustUnlock(l, "the holder that was not killed")
		}
		t.mustUnlock(got, "the successor of a killed process")
	}
}

func shareBroken(t *T) {
	key := t.key("share-broken")
	c := t.client()
	a, b := t.mustLock(t.client().RWMutex(key).RLocker(), "a free key"), t.mustLock(t.client().RWMutex(key).RLocker(), "a second reader")
	if _, err := c.Break(t.ctx, key, lock.IfHeldBy(request(key, time.Second).Owner)); !errors.Is(err, lock.ErrLocked) {
		t.errorf("Break of a key that this owner does not hold: want ErrLocked, got %v", err)
	}
	h, err := c.Break(t.ctx, key, lock.IfHeldBy(b.Owner()))
	if err != nil || h == nil || h.Owner != b.Owner() || h.Share != backend.Reader {
		t.fatalf("Break of one of two readers: want owner %s removed, got %+v, %v", b.Owner(), h, err)
	}
	if err := b.Check(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.errorf("Check of the reader whose lock was broken: want ErrLost, got %v", err)
	}
	if err := a.Check(t.ctx); err != nil {
		t.errorf("Check of the other reader: want nil, got %v", err)
	}
	t.refused(c.Mutex(key), "a writer beside the other reader")
	t.mustUnlock(a, "the other reader")
	t.free(c, key, "after a break", t.slack())

	s := t.client().Semaphore(key, 3)
	p, q := t.mustLock(s.Weighted(2), "two permits"), t.mustLock(s.Weighted(1), "one permit")
	var got []<-chan locked
	if _, ok := t.probe.(backend.Waiter); ok {
		got = t.queueShares(key, permits(3, 3))
	}
	if h, err := c.Break(t.ctx, key); err != nil || h == nil || h.Owner != p.Owner() {
		t.errorf("Break of all holders: want the first, owner %s, got %+v, %v", p.Owner(), h, err)
	}
	for _, l := range []*lock.Lease{p, q} {
		if err := l.Check(t.ctx); !errors.Is(err, lock.ErrLost) {
			t.errorf("Check of a holder whose lock was broken: want ErrLost, got %v", err)
		}
	}
	for _, ch := range got {
		t.mustUnlock(t.granted(t.slack(), "the waiter for all permits", ch).lease, "the waiter")
	}
	t.free(c, key, "after a break of all holders", t.slack())
}

func shareTwice(t *T) {
	key := t.key("share-twice")
	raw := t.open()
	req, g1 := t.tryShare(raw, key, t.longTTL(), permits(1, 2))
	g2 := t.try(raw, req, "the same attempt, sent again")
	if g1.Token() != g2.Token() {
		t.errorf("tokens of one attempt that was sent twice: want the same, got %d and %d", g1.Token(), g2.Token())
	}
	_, second := t.tryShare(raw, key, t.longTTL(), permits(1, 2))
	t.refused(shareOf(t.client(), key, permits(1, 2)), "a third permit of two")
	for _, g := range []backend.Grant{g2, second} {
		if err := g.Release(t.ctx); err != nil {
			t.errorf("Release of a permit: want nil, got %v", err)
		}
	}
	t.free(t.client(), key, "after a request that was sent twice", t.slack())
}

func shareReplyDropped(t *T) {
	for _, s := range []lock.Share{backend.Reader, permits(2, 2)} {
		for _, name := range []string{"TryLock", "Lock", "Lock that waits"} {
			key := t.key("share-dropped")
			tm := t.tamper()
			tm.dropTry.Store(1)
			tm.dropAcquire.Store(1)
			w := t.waiterOf(tm.backend())
			m := shareOf(w.c, key, s)
			var err error
			switch name {
			case "TryLock":
				_, err = m.TryLock(t.ctx)
			case "Lock":
				_, err = m.Lock(t.ctx)
			default:
				if _, ok := t.probe.(backend.Waiter); !ok {
					continue
				}
				l := t.mustLock(t.client().Mutex(key), "a free key")
				got := t.waiting(t.ctx, w, m, name)
				t.mustUnlock(l, "the holder")
				err = t.end(t.slack(), name, got).err
			}
			if !errors.Is(err, errReplyLost) {
				t.errorf("%s of the share %s whose reply was dropped: want that error, got %v", name, s, err)
			}
			t.free(t.client(), key, fmt.Sprintf("after a %s of the share %s whose reply was dropped", name, s), t.slack())
		}
	}
}

func shareAbandoned(t *T) {
	key := t.key("share-abandoned")
	raw := t.open()
	gone, _ := t.tryShare(raw, key, t.longTTL(), permits(2, 3))
	_, kept := t.tryShare(raw, key, t.longTTL(), permits(1, 3))
	for range 2 {
		if err := raw.Abandon(t.ctx, gone); err != nil {
			t.fatalf("Abandon: want nil, got %v", err)
		}
	}
	if err := kept.Renew(t.ctx, t.longTTL()); err != nil {
		t.errorf("Renew of a share beside an abandoned one: want nil, got %v", err)
	}
	_, next := t.tryShare(t.open(), key, t.longTTL(), permits(2, 3))
	t.refused(shareOf(t.client(), key, permits(1, 3)), "a permit where all are held")
	for _, g := range []backend.Grant{kept, next} {
		if err := g.Release(t.ctx); err != nil {
			t.errorf("Release of a share: want nil, got %v", err)
		}
	}
	t.free(t.client(), key, "after an abandoned share", t.slack())
}

func cancelRacesShare(t *T) {
	key := t.key("cancel-share")
	c, w := t.client(), t.waiter()
	shares := []lock.Share{backend.Reader, permits(1, 2)}
	for i := range t.rounds(40, 400) {
		holder := t.mustLock(c.Mutex(key), "the key between two rounds")
		ctx, cancel := context.WithCancel(t.ctx)
		first := t.waiting(ctx, w, shareOf(w.c, key, shares[i%2]), "a share")
		second := t.waiting(t.ctx, w, shareOf(w.c, key, shares[i%2]), "a second share")
		most := time.Duration(1+i/2) * 20 * time.Microsecond
		early, late := rand.N(most), rand.N(most)
		go func() {
			time.Sleep(early) // what the grant races with
			cancel()
		}()
		time.Sleep(late) // what the cancel races with
		t.mustUnlock(holder, "the holder")
		if got := t.end(t.slack(), "a share that is cancelled", first); got.err == nil {
			t.mustUnlock(got.lease, "a share that was granted in time")
		} else if !errors.Is(got.err, context.Canceled) {
			t.errorf("round %d: a share that is cancelled: want context.Canceled, got %v", i, got.err)
		}
		t.mustUnlock(t.granted(t.slack(), "the second share", second).lease, "the second share")
		cancel()
	}
	t.free(c, key, "after all rounds", t.slack())
}
