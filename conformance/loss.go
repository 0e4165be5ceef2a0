package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

const beforeClause = "Until is counted from before the request that the service answered: a lease ends for its holder before the service can grant the key to another client."

var lossCases = []Case{
	{
		ID:     "loss/27-state-destroyed",
		Title:  "a lease whose state is destroyed at the service is lost at its next renewal",
		Clause: "Renew returns ErrLost when the service says that this attempt does not hold the key.",
		needs:  []need{needDestroyState},
		run:    stateDestroyed,
	},
	{
		ID:     "loss/27-session-expired",
		Title:  "all leases of a session that the service has ended are lost",
		Clause: "The end of a session is the loss of all its locks.",
		needs:  []need{needExpireSession},
		run:    sessionExpired,
	},
	{
		ID:     "loss/27-not-on-release",
		Title:  "an ordinary release is no loss",
		Clause: "OnLost is never called for an ordinary release.",
		run:    notOnRelease,
	},
	{
		ID:     "loss/27-asked-late",
		Title:  "a loss can be read late and any number of times",
		Clause: "A lease ends once and never comes back.",
		run:    askedLate,
	},
	{
		ID:     "loss/28-renewals-fail",
		Title:  "the holder whose renewals fail knows of its loss before a successor is granted",
		Clause: beforeClause,
		needs:  []need{needTTL},
		run: func(t *T) {
			tm := t.tamper()
			t.lossBefore(tm.backend(), false, func() { tm.failRenew.Store(true) }, nil)
		},
	},
	{
		ID:     "loss/28-renewals-fail-after-wait",
		Title:  "so does a holder that had to wait for its grant",
		Clause: "Until is never counted from the receipt of a reply or of a pushed message.",
		needs:  []need{needTTL, needQueue},
		run: func(t *T) {
			tm := t.tamper()
			t.lossBefore(tm.backend(), true, func() { tm.failRenew.Store(true) }, nil)
		},
	},
	{
		ID:     "loss/28-slow-receipt",
		Title:  "a grant that reaches a busy waiter late does not last longer for that",
		Clause: "Until is never counted from the receipt of a reply or of a pushed message.",
		needs:  []need{needTTL, needQueue, needLink},
		run:    slowReceipt,
	},
	{
		ID:     "loss/28-slow-replies",
		Title:  "over a slow link a grant and a renewal last from when they were sent",
		Clause: "Until is counted from before the request that the service answered was sent, never from the receipt of the reply.",
		needs:  []need{needExpiry, needLink},
		run:    slowReplies,
	},
	{
		ID:     "loss/28-hang",
		Title:  "the loss of a lease whose service hangs is known before a successor is granted",
		Clause: beforeClause,
		needs:  []need{needExpiry, needStopServer},
		alone:  true,
		run:    hang,
	},
	{
		ID:     "loss/28-cut",
		Title:  "the loss of a lease whose link is cut is known before a successor is granted",
		Clause: beforeClause,
		needs:  []need{needExpiry, needLink},
		run:    func(t *T) { t.linkLoss(func(l Link) { l.Cut() }) },
	},
	{
		ID:     "loss/28-blackhole",
		Title:  "the loss of a lease whose link drops everything is known before a successor is granted",
		Clause: beforeClause,
		needs:  []need{needExpiry, needLink},
		run:    func(t *T) { t.linkLoss(func(l Link) { l.Blackhole() }) },
	},
	{
		ID:     "loss/28-replies-dropped",
		Title:  "a lease whose renewals arrive but are not answered is lost in time; it is freed when the link heals",
		Clause: beforeClause,
		needs:  []need{needExpiry, needLink},
		run:    func(t *T) { t.linkLoss(func(l Link) { l.BlackholeReplies() }) },
	},
	{
		ID:    "loss/28-stale-connections",
		Title: "connections that all fall silent at once, while new ones work, cost no lease and delay a Lock by two requests without answer",
		Clause: "After a request that had no answer in its time, the next one goes over a connection that was opened, or has been" +
			" read from, since that request began.",
		needs: []need{needExpiry, needLink},
		run:   staleConnections,
	},
	{
		ID:     "loss/29-stopped-holder",
		Title:  "a holder that was stopped finds its lease ended at its first check; it keeps a lock that does not expire",
		Clause: "A process that was stopped past its lease finds the lease ended at its next check.",
		needs:  []need{needWorker, needSignals},
		run:    stoppedHolder,
	},
	{
		ID:     "loss/30-lost-lease-answers",
		Title:  "check, extend and unlock of a lost lease answer with the loss; its token stays its own",
		Clause: "What a lease says of itself concerns this lease only, never that of a successor.",
		run:    lostLeaseAnswers,
	},
}

func stateDestroyed(t *T) {
	key, ttl := t.key("destroyed"), t.lossTTL()
	var lost atomic.Int64
	o := &lock.Observer{Lost: func(context.Context, lock.Event) { lost.Add(1) }}
	l := t.mustLock(t.client(lock.WithTTL(ttl), lock.WithObserver(o)).Mutex(key), "a free key")
	if err := t.h.DestroyState(t.ctx, key); err != nil {
		t.fatalf("DestroyState: %v", err)
	}
	select {
	case <-l.Done():
	case <-time.After(ttl/2 + t.slack()):
		t.fatalf("a lease whose state was destroyed: want it lost at its next renewal, in %v, it was not", ttl/3)
	}
	if !errors.Is(l.Err(), lock.ErrLost) {
		t.errorf("a lease whose state was destroyed: want ErrLost, got %v", l.Err())
	}
	if err := l.Unlock(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.errorf("Unlock of a lease whose state was destroyed: want ErrLost, got %v", err)
	}
	t.eventually(t.slack(), "Observer.Lost", func() error {
		if lost.Load() == 0 {
			return errors.New("not called")
		}
		return nil
	})
	if n := lost.Load(); n != 1 {
		t.errorf("Observer.Lost: want one call, got %d", n)
	}
	t.free(t.client(), key, "after its state was destroyed", t.slack())
}

func sessionExpired(t *T) {
	b := t.newBackend()
	ttl := t.lossTTL()
	c, other := t.clientOf(b, lock.WithTTL(ttl)), t.client()
	var leases []*lock.Lease
	for range 3 {
		leases = append(leases, t.mustLock(c.Mutex(t.key("session")), "a free key"))
	}
	if err := t.h.ExpireSession(t.ctx, b); err != nil {
		t.fatalf("ExpireSession: %v", err)
	}
	for _, l := range leases {
		next := t.lockAsync(t.ctx, other.Mutex(l.Name()))
		select {
		case <-l.Done():
		case <-time.After(ttl + t.slack()):
			t.fatalf("a lease whose session was ended: want it lost within its TTL of %v, it was not", ttl)
		}
		if !errors.Is(l.Err(), lock.ErrLost) {
			t.errorf("a lease whose session was ended: want ErrLost, got %v", l.Err())
		}
		got := t.granted(ttl+t.slack(), "a key whose holder's session was ended", next)
		t.mustUnlock(got.lease, "the successor")
	}
}

func notOnRelease(t *T) {
	var lost atomic.Int64
	o := &lock.Observer{Lost: func(context.Context, lock.Event) { lost.Add(1) }}
	c := t.client(lock.WithObserver(o))
	key := t.key("ordinary")
	for range 20 {
		l := t.mustLock(c.Mutex(key), "a free key")
		t.mustUnlock(l, "the holder")
		if cause := context.Cause(l.Context()); !errors.Is(cause, lock.ErrReleased) || errors.Is(cause, lock.ErrLost) {
			t.errorf("the context of a released lease: want ErrReleased, got %v", cause)
		}
	}
	raw := t.open()
	var reported atomic.Int64
	req := request(key, t.longTTL())
	req.OnLost = func(error) { reported.Add(1) }
	g := t.try(raw, req, "a free key")
	if err := g.Release(t.ctx); err != nil {
		t.errorf("Release by the holder: want nil, got %v", err)
	}
	next := t.mustLock(t.client().Mutex(key), "a released key")
	t.idleFor(50 * time.Millisecond)
	if n := reported.Load() + lost.Load(); n > 0 {
		t.errorf("losses reported after ordinary releases: want 0, got %d", n)
	}
	t.mustUnlock(next, "the successor")
}

func askedLate(t *T) {
	l := t.lapse(t.client(), t.key("late"))
	t.idleFor(t.ttl() / 2)
	for range 2 {
		select {
		case <-l.Done():
		default:
			t.errorf("Done of a lost lease, asked late: want it closed, it is not")
		}
		if err := l.Err(); !errors.Is(err, lock.ErrLost) {
			t.errorf("Err of a lost lease, asked late: want ErrLost, got %v", err)
		}
		if err := l.Context().Err(); err == nil {
			t.errorf("the context of a lost lease, asked late: want it ended, it is not")
		}
	}
}

func stoppedHolder(t *T) {
	key, ttl := t.key("stopped"), t.ttl()
	p := t.worker()
	p.lock(key, ttl)
	p.say(fmt.Sprintf("watch %s %v", key, ttl))
	p.expect("watching", t.slack())
	if err := p.stop(); err != nil {
		t.notRun("a process cannot be stopped here: %v", err)
	}
	c := t.client()
	if !t.expires() {
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); t.idleFor(ttl / 10) {
			t.refused(c.Mutex(key), "a key whose holder is stopped but alive")
		}
		p.resume()
		if got := p.expect("first-check", t.slack()); got != "held" {
			t.errorf("a stopped holder of a lock that ends with its process only: want it held, it says %s", got)
		}
		p.unlock(key)
		t.free(c, key, "after its release", t.slack())
		return
	}
	next := t.granted(2*ttl+t.slack(), "the successor of a stopped holder", t.lockAsync(t.ctx, c.Mutex(key)))
	t.idleFor(ttl / 2)
	p.resume()
	if got := p.expect("first-check", t.slack()); got != "lost" {
		t.errorf("a holder that was stopped for more than its TTL of %v: want its context ended at its first check, it says %s", ttl, got)
	}
	p.say("unlock " + key)
	if got := p.expect("unlock", t.slack()+5*time.Second); got != "lost" {
		t.errorf("Unlock by a holder that was stopped past its TTL: want ErrLost, it says %s", got)
	}
	t.refused(t.client().Mutex(key), "the successor's key after the stopped holder's Unlock")
	t.mustUnlock(next.lease, "the successor")
}

func lostLeaseAnswers(t *T) {
	key := t.key("answers")
	c1, c2 := t.client(), t.client()
	l := t.lapse(c1, key)
	token, had := l.Token()
	next := t.granted(t.ttl()+t.slack(), "an expired key", t.lockAsync(t.ctx, c2.Mutex(key))).lease
	for name, call := range map[string]func() error{
		"Check":  func() error { return l.Check(t.ctx) },
		"Extend": func() error { return l.Extend(t.ctx, t.longTTL()) },
		"Unlock": func() error { return l.Unlock(t.ctx) },
		"Err":    l.Err,
	} {
		t.within(t.slack(), name+" of a lost lease", func() {
			if err := call(); !errors.Is(err, lock.ErrLost) {
				t.errorf("%s of a lost lease: want ErrLost, got %v", name, err)
			}
		})
	}
	if now, has := l.Token(); now != token || has != had {
		t.errorf("Token of a lost lease: want its own, %s, got %s", fmt.Sprint(token, had), fmt.Sprint(now, has))
	}
	if l.Owner() == next.Owner() {
		t.errorf("Owner of a lost lease: want its own, got the successor's %s", next.Owner())
	}
	t.refused(c1.Mutex(key), "the successor's key after all that")
	t.mustUnlock(next, "the successor")
}
