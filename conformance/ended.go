package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// endedCases are about leases that have ended, and what is seen of them.
var endedCases = []Case{
	{
		ID:     "capabilities/00-list-agrees",
		Title:  "List and Inspect of one client give the same answer about a lease that was not renewed",
		Clause: "A Lister and an Inspector of one client agree on whether a key is held.",
		needs:  []need{needInspect, needList, needTTL},
		run:    listAgrees,
	},
	{
		ID:     "release/18-min-hold-after-close",
		Title:  "after Unlock and Close within a minimum hold, clients that are opened later get the key when the minimum hold has passed",
		Clause: "After a minimum hold whose client was closed, the key is free for every client: at once with a Keeper, after the TTL without.",
		needs:  []need{needTTL},
		run:    minHoldAfterClose,
	},
}

func listAgrees(t *T) {
	c, ttl := t.client(), t.ttl()
	key := t.key("list-agrees")
	listed := func() (held bool) {
		for info, err := range c.List(t.ctx) {
			if err != nil {
				t.fatalf("List: want the held keys, got %v", err)
			}
			held = held || info.Name == key && info.Holder != nil
		}
		return held
	}
	begun := time.Now()
	t.try(t.open(), request(key, ttl), "a free key")
	for inList, held := true, true; held; t.idleFor(ttl / 10) {
		info, err := c.Inspect(t.ctx, key)
		if err != nil {
			t.fatalf("Inspect: want the state of the key, got %v", err)
		}
		if held = info.Holder != nil; held && !inList {
			t.fatalf("Inspect: want no holder of a key that List had left out, got %+v", info.Holder)
		}
		if inList = listed(); inList && !held {
			t.fatalf("List: want a key left out of which Inspect has shown no holder, it is listed")
		}
		if held && time.Since(begun) > 2*ttl+t.slack() {
			t.fatalf("Inspect: want no holder of a lease of %v that was not renewed for %v, got %+v", ttl, time.Since(begun), info.Holder)
		}
	}
}

func minHoldAfterClose(t *T) {
	const hold = 2 * time.Second
	ttl, bound := t.clampTTL(10*time.Second), hold+t.slack()
	g := t.try(t.open(), request(t.key("keeper"), ttl), "a free key")
	if _, ok := backend.As[backend.Keeper](g); !ok {
		bound = ttl + t.slack()
	}
	if err := g.Release(t.ctx); err != nil {
		t.errorf("Release: want nil, got %v", err)
	}
	tried, waited := t.key("min-hold-tried"), t.key("min-hold-waited")
	c, closeClient := t.ownClient(lock.WithTTL(ttl))
	begun := time.Now()
	for _, key := range []string{tried, waited} {
		l := t.mustLock(c.Mutex(key, lock.WithMinHold(hold)), "a free key")
		t.mustUnlock(l, "a holder within its minimum hold")
	}
	granted := time.Now()
	closeClient()
	later := t.client()
	waits := t.lockAsync(t.ctx, later.Mutex(waited))
	early := func(what string, at time.Time) {
		if d := at.Sub(begun); d < hold {
			t.errorf("%s: want it refused for the minimum hold of %v, it was granted %v after the lock was requested", what, hold, d)
		}
	}
	for {
		var g backend.Grant
		b, err := t.h.Open(t.ctx) // a new process each time, as cron makes them
		if err == nil {
			if g, err = b.TryAcquire(t.ctx, request(tried, t.ttl())); err == nil {
				early("TryAcquire of new clients", time.Now())
				err = g.Release(context.WithoutCancel(t.ctx))
			}
			err = errors.Join(err, b.Close(t.ctx))
		}
		if g != nil {
			break
		}
		if !errors.Is(err, backend.ErrLocked) {
			t.fatalf("TryAcquire of a new client within a minimum hold: want ErrLocked, got %v", err)
		}
		if d := time.Since(granted); d > bound {
			t.fatalf("TryAcquire of new clients: want a grant within %v after a grant with the minimum hold %v whose client was closed, it is refused after %v", bound, hold, d)
		}
		t.idleFor(hold / 10)
	}
	got := t.granted(bound, "Lock of a new client after the minimum hold", waits)
	early("Lock of a new client", got.at)
	t.mustUnlock(got.lease, "the new client")
}
