package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var waitingCases = []Case{
	{
		ID:     "waiting/08-try-answers-at-once",
		Title:  "TryLock of a held key answers at once, with ErrLocked",
		Clause: "TryAcquire makes one attempt and never waits for the holder.",
		run:    tryAnswersAtOnce,
	},
	{
		ID:     "waiting/08-timed-wait",
		Title:  "a timed wait ends in time, and its error says which limit it was and that the key was held",
		Clause: "All methods return soon after their context ends, with its error reachable by errors.Is.",
		run:    timedWait,
	},
	{
		ID:     "waiting/09-granted-on-release",
		Title:  "a waiter gets the lock when it is released",
		Clause: "Acquire waits until the key is granted.",
		run:    grantedOnRelease,
	},
	{
		ID:     "waiting/09-granted-on-expiry",
		Title:  "a waiter gets the lock when the holder's TTL has passed, without a request and not before",
		Clause: "A grant that is not renewed keeps the key for its TTL, and then frees it.",
		needs:  []need{needTTL},
		run:    grantedOnExpiry,
	},
	{
		ID:     "waiting/09-granted-on-break",
		Title:  "a waiter gets the lock when it is broken",
		Clause: "Break frees a key, whichever client holds it. The first waiter gets it.",
		needs:  []need{needBreak},
		run:    grantedOnBreak,
	},
	{
		ID:     "waiting/09-granted-on-death",
		Title:  "a waiter gets the lock when the holder's process is killed",
		Clause: "A killed holder's key is free within its bound: the TTL, or at once where the process's end is what frees it.",
		needs:  []need{needWorker},
		run:    grantedOnDeath,
	},
	{
		ID:     "waiting/10-no-lost-wakeup",
		Title:  "a release that races with the beginning of a wait wakes the waiter, whatever the delay between them",
		Clause: "A waiter is granted a key that was freed before, while or after it entered the queue.",
		alone:  true,
		run:    noLostWakeup,
	},
	{
		ID:     "waiting/10-served-beside-relocks",
		Title:  "a client that locks again as soon as it has unlocked does not keep out one that waits",
		Clause: "Every waiter is served in the end, also while another client locks again at once.",
		needs:  []need{needQueue},
		run:    relocked,
	},
	{
		ID:     "waiting/10-push-is-prompt",
		Title:  "a waiter is notified of its turn: a hand-off takes far less than a poll",
		Clause: "If Wake is WakePush, the backend notifies a waiter of its turn.",
		needs:  []need{declared(backend.RequirePush)},
		alone:  true,
		run:    pushIsPrompt,
	},
}

func tryAnswersAtOnce(t *T) {
	holder, other := t.client(), t.client()
	key := t.key("held")
	l := t.mustLock(holder.Mutex(key), "a free key")
	for range 5 {
		t.within(t.slack(), "TryLock of a held key", func() { t.refusedAsync(other.Mutex(key)) })
	}
	raw := t.open()
	t.within(t.slack(), "raw TryAcquire of a held key", func() {
		if g, err := raw.TryAcquire(t.ctx, request(key, t.longTTL())); g != nil || !errors.Is(err, backend.ErrLocked) {
			t.errorf("raw TryAcquire of a held key: want no grant and ErrLocked, got %v, %v", g, err)
		}
	})
	t.mustUnlock(l, "the holder")
}

// refusedAsync is refused for goroutines other than the case's.
func (t *T) refusedAsync(m lock.Mutex) {
	l, err := m.TryLock(t.ctx)
	switch {
	case err == nil:
		t.errorf("TryLock of a held key: want ErrLocked, it was granted %s", leaseText(l))
	case !errors.Is(err, lock.ErrLocked):
		t.errorf("TryLock of a held key: want ErrLocked, got %v", err)
	}
}

func timedWait(t *T) {
	holder, other := t.client(), t.waiter()
	key := t.key("held")
	l := t.mustLock(holder.Mutex(key), "a free key")
	for _, limit := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 2 * time.Second} {
		other.forget()
		start := time.Now() // no later than the deadline's beginning
		ctx, cancel := context.WithTimeout(t.ctx, limit)
		var lease *lock.Lease
		var err error
		t.within(limit+t.slack(), fmt.Sprintf("Lock with a deadline of %v", limit), func() {
			lease, err = other.c.Mutex(key).Lock(ctx)
		})
		took := time.Since(start)
		cancel()
		switch {
		case err == nil:
			t.fatalf("Lock of a held key: want an error, it was granted %s", leaseText(lease))
		case !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
			t.errorf("Lock past its deadline: want DeadlineExceeded and not Canceled, got %v", err)
		case limit > time.Second && !errors.Is(err, lock.ErrLocked):
			t.answered(other, limit, err)
			t.errorf("Lock past its deadline of %v: want ErrLocked as well, since the key was held, got %v", limit, err)
		case took < limit:
			t.errorf("Lock with a deadline of %v: want it to use its time, it gave up after %v", limit, took)
		}
	}
	// The raw contract: the sentinel and the context's error, side by side.
	if w, ok := t.open().(backend.Waiter); ok {
		ctx, cancel := context.WithCancel(t.ctx)
		req := request(key, t.longTTL())
		waits, errs := t.acquireRaw(ctx, w, req)
		cancel()
		if err := await(t, t.slack(), "raw Acquire whose context was cancelled", "a result", errs); !errors.Is(err, context.Canceled) {
			t.errorf("raw Acquire whose context was cancelled: want an error that matches it, got %v", err)
		}
		if n := len(waits); n > 0 {
			t.errorf("OnWait: want one call, got %d", n+1)
		}
		t.eventually(t.slack(), "Abandon of the raw attempt", func() error { return t.open().Abandon(t.ctx, req) })
	}
	t.mustUnlock(l, "the holder")
}

func grantedOnRelease(t *T) {
	key := t.key("release")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	for i := range 5 {
		got := t.lockWaiting(t.ctx, t.waiter(), key)
		t.mustUnlock(l, "the holder")
		next := t.granted(t.slack(), fmt.Sprintf("waiter %d after the release", i), got).lease
		l = next
	}
	t.mustUnlock(l, "the last holder")
}

func grantedOnExpiry(t *T) {
	key, ttl := t.key("expiry"), t.clampTTL(3*time.Second) // a busy machine has the waiter in the queue by then
	w := t.waiter()
	before := time.Now()
	_, g := t.holdRaw(t.open(), key, ttl)
	keeps := g.Until()
	if keeps.IsZero() {
		keeps = before.Add(ttl)
	}
	got := t.granted(ttl+t.slack(), "a waiter behind a holder that does not renew",
		t.lockWaiting(t.ctx, w, key))
	if got.at.Before(keeps) {
		t.errorf("grant to the waiter: want none before the holder's Until, it came %v earlier", keeps.Sub(got.at))
	}
	t.mustUnlock(got.lease, "the waiter")
}

func grantedOnBreak(t *T) {
	key := t.key("break")
	c := t.client()
	old := t.mustLock(c.Mutex(key), "a free key")
	got := t.lockWaiting(t.ctx, t.waiter(), key)
	removed, err := t.client().Break(t.ctx, key)
	if err != nil {
		t.fatalf("Break of a held key: want the holder, got %v", err)
	}
	if removed == nil || removed.Owner != old.Owner() {
		t.errorf("Break of a held key: want the holder it removed, %s, got %+v", old.Owner(), removed)
	}
	l := t.granted(t.slack(), "the waiter after the break", got).lease
	t.mustUnlock(l, "the waiter")
}

func grantedOnDeath(t *T) {
	key, ttl := t.key("death"), t.clampTTL(3*time.Second) // long enough to be kept by a busy machine until the kill
	p, w := t.worker(), t.waiter()
	p.lock(key, ttl)
	got := t.lockWaiting(t.ctx, w, key)
	p.kill()
	t.mustUnlock(t.granted(t.deathBound(ttl), "the waiter after the holder was killed", got).lease, "the waiter")
}

// deathBound is when the key of a killed holder must be free.
func (t *T) deathBound(ttl time.Duration) time.Duration {
	if t.expires() {
		return ttl + t.slack()
	}
	return t.slack()
}

func noLostWakeup(t *T) {
	key := t.key("wakeup")
	holder, w := t.client(), t.waiter()

	// How long it takes to enter the queue says which delays are interesting.
	// The least of some, since a busy machine only ever adds.
	enters := time.Hour
	for range 5 {
		l := t.mustLock(holder.Mutex(key), "a free key")
		start := time.Now()
		got := t.lockWaiting(t.ctx, w, key)
		enters = min(enters, time.Since(start))
		t.mustUnlock(l, "the holder")
		t.mustUnlock(t.granted(t.slack(), "a waiter", got).lease, "a waiter")
	}

	n := t.rounds(200, 2000)
	for i := range n {
		delay := enters * 3 * time.Duration(i%100) / 100
		l := t.mustLock(holder.Mutex(key), "the key between two rounds")
		go1 := make(chan struct{})
		got := make(chan locked, 1)
		go func() {
			close(go1)
			l, err := w.c.Mutex(key).Lock(t.ctx)
			got <- locked{l, err, time.Now()}
		}()
		<-go1
		spin(delay)
		t.mustUnlock(l, "the holder")
		what := fmt.Sprintf("round %d of %d: a waiter whose holder released %v after its Lock began (TTL %v)", i, n, delay, t.longTTL())
		t.mustUnlock(t.granted(t.slack(), what, got).lease, "the waiter")
	}
}

// spin waits for less than a timer can measure.
func spin(d time.Duration) {
	if d > 2*time.Millisecond {
		time.Sleep(d - time.Millisecond)
		d = time.Millisecond
	}
	for start := time.Now(); time.Since(start) < d; {
	}
}

// pollFloor is less than what asking again and again at a reasonable rate takes. A
// service that takes long for a free key takes as long for a hand-off.
const pollFloor = 50 * time.Millisecond

func pushIsPrompt(t *T) {
	if _, ok := t.probe.(backend.Waiter); !ok {
		t.fatalf("Wake is declared as WakePush: want the driver to implement backend.Waiter, it does not, so the core polls")
	}
	key := t.key("push")
	holder, w := t.client(), t.waiter()
	var took, alone []time.Duration
	for range 7 {
		start := time.Now()
		l := t.mustLock(holder.Mutex(key), "a free key")
		alone = append(alone, time.Since(start))
		got := t.lockWaiting(t.ctx, w, key)
		t.idleFor(250*time.Millisecond + rand.N(150*time.Millisecond)) // a poller has slowed down by now, and is at any point of its pause
		start = time.Now()
		t.mustUnlock(l, "the holder")
		g := t.granted(t.slack(), "the waiter", got)
		took = append(took, g.at.Sub(start))
		t.mustUnlock(g.lease, "the waiter")
	}
	slices.Sort(took)
	slices.Sort(alone)
	bound := max(pollFloor, 3*alone[len(alone)/2])
	if median := took[len(took)/2]; median > bound {
		t.errorf("hand-off to a waiter: want a median below %v where Wake is declared as WakePush, got %v of %v", bound, median, took)
	}
}
