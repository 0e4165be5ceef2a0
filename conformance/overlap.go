package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// overlapCases are about requests and outages that meet a change of the lease.
var overlapCases = []Case{
	{
		ID:     "waiting/12-stopped-waiter",
		Title:  "a waiter whose process was stopped for more than its TTL is granted the key once the process continues",
		Clause: "A waiter that lost its place because its process was stopped joins the queue again.",
		needs:  []need{needWorker, needSignals},
		run:    stoppedWaiter,
	},
	{
		ID:     "cancellation/15-own-limits",
		Title:  "no error of a request that the network swallows, refuses or breaks off matches DeadlineExceeded or Canceled, if the caller set no deadline and did not cancel",
		Clause: "An error matches context.DeadlineExceeded or context.Canceled only if the context of the caller has ended: a limit of the driver's own does not count.",
		needs:  []need{needLink},
		run:    ownLimits,
	},
	{
		ID:     "release/19-overlaps-renewal",
		Title:  "a Release that overlaps a Renew of the same grant leaves the key free",
		Clause: "After Release has returned nil the key is not held by the grant, also if a Renew was under way.",
		run:    releaseOverlapsRenewal,
	},
	{
		ID:     "release/19-unlock-in-outage",
		Title:  "Unlock under a live lease, in an outage that outlasts the TTL, returns nil or ErrUncertain and never ErrLost",
		Clause: "Unlock returns ErrLost only if the lock was lost before Unlock was called.",
		needs:  []need{needLink, needExpiry},
		run:    unlockInOutage,
	},
	{
		ID:     "lease/23-outage-after-push",
		Title:  "a lease that a waiter was granted survives an outage of half its TTL that begins 50 ms after the grant (up to 500 ms on a busy machine)",
		Clause: "A grant of a provisional TTL is renewed soon after it was received.",
		needs:  []need{needLink, needExpiry},
		run:    outageAfterPush,
	},
	{
		ID:     "fencing/33-guarded-write-exact",
		Title:  "a guarded write compares neighbouring tokens above 2^53 exactly",
		Clause: "Tokens have 64 bits: a resource must not compare them as floating-point numbers.",
		needs:  []need{declared(backend.RequireFencing), needGuardedWrite},
		run:    guardedWriteExact,
	},
}

func stoppedWaiter(t *T) {
	key, ttl := t.key("stopped-waiter"), t.ttl()
	l := t.mustLock(t.client(lock.WithTTL(t.longTTL())).Mutex(key), "a free key")
	p := t.worker()
	p.waitLock(key, ttl)
	if err := p.stop(); err != nil {
		t.notRun("a process cannot be stopped here: %v", err)
	}
	t.idleFor(2*ttl + ttl/2)
	p.resume()
	t.idleFor(ttl)
	p.stillWaits("a waiter that was stopped, of a key that is still held")
	t.mustUnlock(l, "the holder")
	p.expect("granted", 2*ttl+t.slack())
	t.refused(t.client().Mutex(key), "a key that the waiter holds, which had been stopped")
	p.unlock(key)
	t.free(t.client(), key, "after its release", t.slack())
}

// ownLimit is longer than the limits that drivers put on a request by themselves.
const ownLimit = 7 * time.Second

// breakOff is after how long connections end on which requests wait for their replies: less than drivers wait.
const breakOff = 300 * time.Millisecond

func ownLimits(t *T) {
	var wg sync.WaitGroup
	var links []Link
	for what, fault := range map[string]func(Link){
		"refused connections": Link.Cut, "a silent link": Link.Blackhole,
		"connections that end during the request": func(l Link) {
			l.BlackholeReplies()
			time.AfterFunc(breakOff, l.Cut)
		},
	} {
		b, link := t.faulty()
		c := t.clientOf(b, lock.WithTTL(t.longTTL()))
		held := t.mustLock(c.Mutex(t.key("held")), "a free key")
		released := t.mustLock(c.Mutex(t.key("released")), "a free key")
		free := t.key("free")
		links = append(links, link)
		fault(link)
		ctx, cancel := context.WithCancel(t.ctx)
		time.AfterFunc(ownLimit, cancel)
		t.later(func(context.Context) { cancel() })
		for name, call := range map[string]func() error{
			"TryLock": func() error { _, err := c.Mutex(free).TryLock(ctx); return err },
			"Check":   func() error { return held.Check(ctx) },
			"Unlock":  func() error { return released.Unlock(ctx) },
			"Inspect": func() error { _, err := c.Inspect(ctx, free); return err },
			"Ping":    func() error { return c.Ping(ctx) },
		} {
			wg.Go(func() {
				err := call()
				if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) && ctx.Err() == nil {
					t.errorf("%s over %s, before its context has ended: want an error that matches neither DeadlineExceeded nor Canceled, got %v", name, what, err)
				}
			})
		}
	}
	wg.Wait()
	for _, link := range links {
		link.Heal() // before the clients are closed
	}
}

func releaseOverlapsRenewal(t *T) {
	raw, other := t.open(), t.client()
	for round := range t.rounds(20, 200) {
		key := t.key(fmt.Sprintf("overlap-%d", round))
		_, g := t.holdRaw(raw, key, t.longTTL())
		var renewing sync.WaitGroup
		begins := make(chan struct{})
		renewing.Go(func() {
			close(begins)
			if err := g.Renew(t.ctx, t.longTTL()); err != nil && !errors.Is(err, backend.ErrLost) {
				t.errorf("Renew that overlaps a Release: want nil or ErrLost, got %v", err)
			}
		})
		<-begins
		if err := g.Release(t.ctx); err != nil {
			t.errorf("Release that overlaps a Renew: want nil, got %v", err)
		}
		renewing.Wait()
		if err := g.Renew(t.ctx, t.longTTL()); !errors.Is(err, backend.ErrLost) {
			t.errorf("Renew after a Release that overlapped a Renew: want ErrLost, got %v", err)
		}
		l, err := other.Mutex(key).TryLock(t.ctx)
		if err != nil {
			t.fatalf("a key after a Release that overlapped a Renew: want it free, got %v", err)
		}
		t.mustUnlock(l, "the successor")
	}
}

func unlockInOutage(t *T) {
	var wg sync.WaitGroup
	var links []Link
	for what, fault := range map[string]func(Link){
		"refused connections": Link.Cut, "a silent link": Link.Blackhole, "a link that drops replies": Link.BlackholeReplies,
	} {
		b, link := t.faulty()
		l := t.mustLock(t.clientOf(b, lock.WithTTL(t.lossTTL())).Mutex(t.key("outage")), "a free key")
		links = append(links, link)
		fault(link)
		if l.Err() != nil {
			t.again("the machine was too slow for the TTL: %v", l.Err())
		}
		wg.Go(func() {
			if err := l.Unlock(t.ctx); errors.Is(err, lock.ErrLost) || err != nil && !errors.Is(err, lock.ErrUncertain) {
				t.errorf("Unlock under a live lease over %s: want nil or ErrUncertain, got %v", what, err)
			}
		})
	}
	wg.Wait()
	for _, link := range links {
		link.Heal() // before the clients are closed
	}
}

func outageAfterPush(t *T) {
	b, link := t.faulty()
	key, ttl := t.key("outage"), t.clampTTL(8*time.Second)
	w := t.waiterOf(b, lock.WithTTL(ttl))
	first := t.mustLock(t.client().Mutex(key), "a free key")
	got := t.lockWaiting(t.ctx, w, key)
	t.mustUnlock(first, "the holder")
	l := t.granted(t.slack(), "the waiter", got).lease
	granted := time.Now()
	t.idleFor(50 * time.Millisecond)
	for time.Until(l.Expires()) < ttl*3/4 && time.Since(granted) < min(t.slack()/20, 500*time.Millisecond) {
		t.idleFor(10 * time.Millisecond) // the machine is busy
	}
	after := time.Since(granted)
	link.Cut()
	t.idleFor(ttl / 2)
	link.Heal()
	t.idleFor(ttl / 2)
	if err := l.Check(t.ctx); err != nil {
		t.errorf("a lease of TTL %v, after an outage of %v that began %v after its grant: want it held, got %v", ttl, ttl/2, after, err)
	}
	t.mustUnlock(l, "the waiter")
}

func guardedWriteExact(t *T) {
	key := t.key("guarded-exact")
	const base = uint64(1)<<58 + 2 // equal to its neighbours as a floating-point number
	for _, token := range []uint64{base, base + 1} {
		if err := t.h.GuardedWrite(t.ctx, key, token); err != nil {
			t.errorf("a guarded write with token %d: want nil, got %v", token, err)
		}
	}
	for _, stale := range []uint64{base, base - 1, 1<<53 + 1} {
		if err := t.h.GuardedWrite(t.ctx, key, stale); err == nil {
			t.errorf("a guarded write with the stale token %d after %d: want it refused, got nil", stale, base+1)
		}
	}
	if err := t.h.GuardedWrite(t.ctx, key, base+2); err != nil {
		t.errorf("a guarded write with token %d after refused ones: want nil, got %v", base+2, err)
	}
}
