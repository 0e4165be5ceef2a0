package conformance

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var sharedDeadCases = []Case{
	{
		ID:     "shared/48-dead-waiter",
		Title:  "a waiter that was killed, or stopped, and whose share does not fit beside the holders, delays the shares behind it by at most the declared time",
		Clause: "A dead waiter that does not fit beside the holders delays a share that comes after its death by at most Budget.DeadProcess, and one that waited already by at most twice that.",
		needs:  []need{needShared, needPermits, needQueue, needDeadProcess},
		run:    deadWaiterBesideShares,
	},
	{
		ID:     "shared/48-waiter-alive",
		Title:  "a waiter that is alive keeps its place before the shares behind it, for as long as the holders stay",
		Clause: "Shares are granted in the order of arrival.",
		needs:  []need{needShared, needPermits, needQueue, needDeadProcess},
		run:    liveWaiterBesideShares,
	},
}

// blocked is a queue whose first waiter does not fit beside the holder, and the others do.
type blocked struct{ held, first, behind lock.Share }

var blockedQueues = []blocked{
	{held: backend.Reader, behind: backend.Reader}, // behind a writer
	{held: permits(1, 3), first: permits(3, 3), behind: permits(1, 3)},
}

func deadWaiterBesideShares(t *T) {
	deaths := []string{"killed"}
	if s, _ := needSignals.check(t); s == "" && t.h.Worker != nil && t.expires() {
		deaths = append(deaths, "stopped")
	}
	ttl, alive := t.clampTTL(30*time.Second), t.clampTTL(30*time.Second)
	if t.caps.Loss == backend.LossSession { // which lasts for the TTL
		ttl, alive = t.clampTTL(3*time.Second), t.clampTTL(10*time.Second)
	}
	each := deadQueue{processes: 1, ttl: ttl}.bound(t)
	clients := map[string]*mortal{}
	for _, how := range deaths {
		clients[how] = t.mortals(1)[0]
	}
	type late struct {
		what  string
		bound time.Duration
		got   <-chan locked
	}
	var waits []late
	var holders []*lock.Lease
	come := map[string]func(){} // the shares that come after a death
	for i, q := range blockedQueues {
		for _, how := range deaths {
			early, fresh := t.key(fmt.Sprintf("dead-early-%d-%s", i, how)), t.key(fmt.Sprintf("dead-late-%d-%s", i, how))
			for _, key := range []string{early, fresh} {
				holders = append(holders, t.mustLock(shareOf(t.client(), key, q.held, lock.WithTTL(alive)), "a free key"))
				clients[how].wait(key, ttl, q.first)
			}
			what := fmt.Sprintf("%s behind a waiter for %s that was %s, beside %s", q.behind, q.first, how, q.held)
			w := t.waiter()
			waits = append(waits, late{what, each + each - t.slack(), t.waiting(t.ctx, w, shareOf(w.c, early, q.behind, lock.WithTTL(alive)), what)})
			c, before := t.client(), come[how]
			come[how] = func() {
				if before != nil {
					before()
				}
				what := "new: " + what
				waits = append(waits, late{what, each, t.lockAsync(t.ctx, shareOf(c, fresh, q.behind, lock.WithTTL(alive)))})
			}
		}
	}
	start := time.Now()
	clients["killed"].kill()
	if c := clients["stopped"]; c != nil {
		if err := c.process.stop(); err != nil {
			t.fatalf("worker: %v", err)
		}
	}
	for _, how := range deaths {
		come[how]()
	}
	for _, w := range waits {
		got := t.end(w.bound-time.Since(start), w.what, w.got)
		if got.err != nil {
			t.errorf("%s: want a grant within %v, got %v", w.what, w.bound, got.err)
			continue
		}
		t.notef("%s: granted after %v", w.what, got.at.Sub(start).Round(time.Millisecond))
		t.mustUnlock(got.lease, w.what)
	}
	for _, l := range holders {
		t.mustUnlock(l, "a holder that was not concerned")
	}
}

func liveWaiterBesideShares(t *T) {
	var firsts, others []<-chan locked
	var holders []*lock.Lease
	for i, q := range blockedQueues {
		key := t.key(fmt.Sprintf("alive-%d", i))
		holders = append(holders, t.mustLock(shareOf(t.client(), key, q.held), "a free key"))
		got := t.queueShares(key, q.first, q.behind)
		firsts, others = append(firsts, got[0]), append(others, got[1])
	}
	t.idleFor(3 * t.h.Budget.DeadProcess)
	t.stillWaits("beside a holder", append(firsts, others...)...)
	for i, l := range holders {
		t.mustUnlock(l, "a holder")
		first := t.granted(t.slack(), "the first waiter, which is alive", firsts[i])
		t.stillWaits("behind the first waiter", others[i])
		t.mustUnlock(first.lease, "the first waiter")
		t.mustUnlock(t.granted(t.slack(), "the waiter behind it", others[i]).lease, "the waiter behind it")
	}
}
