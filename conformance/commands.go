package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

func wakesPerRelease(t *T) {
	const waiters, releases = 16, 10
	key := t.key("wakes")
	var ws []*waiter
	for range 4 {
		ws = append(ws, t.waiter())
	}
	l := t.mustLock(t.client().Mutex(key), "a free key")
	all := make(chan locked, waiters)
	for i := range waiters {
		ch := t.lockWaiting(t.ctx, ws[i%len(ws)], key)
		go func() { all <- <-ch }()
	}
	before, err := t.h.Wakes(t.ctx)
	if err != nil {
		t.fatalf("Wakes: %v", err)
	}
	for i := range releases {
		t.mustUnlock(l, "a holder")
		l = t.granted(t.slack(), fmt.Sprintf("a waiter after release %d", i), all).lease
	}
	after, err := t.h.Wakes(t.ctx)
	if err != nil {
		t.fatalf("Wakes: %v", err)
	}
	if most := int64(releases * t.h.Budget.WakesPerRelease); after-before > most {
		t.errorf("%d releases with %d waiting: want at most %d waiters woken (WakesPerRelease is %d), were %d",
			releases, waiters, most, t.h.Budget.WakesPerRelease, after-before)
	}
	for range waiters - releases {
		t.mustUnlock(l, "a holder")
		l = t.granted(t.slack(), "the rest of the queue", all).lease
	}
	t.mustUnlock(l, "the last holder")
}

// commands returns how many commands the service executed while f ran, without
// the cost of counting.
func (t *T) commands(f func()) int64 {
	read := func() int64 {
		n, err := t.h.ServerCommands(t.ctx)
		if err != nil {
			t.fatalf("ServerCommands: %v", err)
		}
		return n
	}
	a := read()
	b := read()
	cost := b - a
	f()
	return read() - b - cost
}

func handOffCommands(t *T) {
	var before float64
	for _, n := range []int{4, 16, 64} {
		key := t.key("hand-off")
		ctx, cancel := context.WithCancel(t.ctx)
		var cs []*lock.Client
		for range 4 {
			cs = append(cs, t.client())
		}
		var cycles atomic.Int64
		var wg sync.WaitGroup
		for i := range n + 1 {
			m := cs[i%4].Mutex(key)
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := m.Lock(ctx)
					if err == nil {
						cycles.Add(1)
						err = l.Unlock(ctx)
					}
					if err != nil && ctx.Err() == nil {
						t.errorf("with %d waiting: want a lock and an unlock, got %v", n, err)
						return
					}
				}
			})
		}
		reach := func(more int64) {
			want := cycles.Load() + more
			t.eventually(time.Minute, fmt.Sprintf("%d cycles with %d waiting", more, n), func() error {
				if t.failed() || cycles.Load() >= want {
					return nil
				}
				return fmt.Errorf("%d short", want-cycles.Load())
			})
		}
		reach(int64(2 * n)) // everybody is in the queue by now
		var each, most float64
		// A busy machine delays replies, which then cost further commands: one stretch of three
		// must meet the budget.
		for range 3 {
			var done int64
			sent := t.commands(func() {
				done = cycles.Load()
				reach(int64(t.rounds(400, 4000)))
				done = cycles.Load() - done
			})
			each = float64(sent) / float64(done)
			t.notef("%d waiting: %d commands for %d cycles, %.2f each", n, sent, done, each)
			// the counter and the cycles are not read at the same instant
			most = t.h.Budget.HandOffCommands * (1 + float64(n)/float64(done)) * 1.02
			if each <= most {
				break
			}
		}
		cancel()
		t.within(t.slack()+10*time.Second, "the end of all waits", wg.Wait)
		if each > most {
			t.errorf("with %d waiting: want at most %.2f commands per cycle in one of three stretches, got %.2f in the last (%.2f with fewer waiting)",
				n, t.h.Budget.HandOffCommands, each, before)
		}
		if t.failed() {
			return
		}
		before = each
	}
}

func idleHolder(t *T) {
	const ttls = 3
	ttl := t.clampTTL(max(t.ttl(), 1500*time.Millisecond))
	s := t.steady(ttl)
	l := t.mustLock(s.c.Mutex(t.key("idle")), "a free key")
	t.idleCommands(ttls*ttl, t.idleHolderBudget(ttls), fmt.Sprintf("an idle holder, IdleHolderCommands being %v,", t.h.Budget.IdleHolderCommands))
	s.unlock(l, "the idle holder")
}

// idleHolderBudget is what a holder may cost in some TTLs, and half a TTL more: the
// count does not begin with a renewal.
func (t *T) idleHolderBudget(ttls float64) int64 {
	return int64((ttls + 0.5) * t.h.Budget.IdleHolderCommands)
}

// idleCommands counts the commands of an idle period. A busy machine repeats late renewals, so
// one period of three must meet the budget.
func (t *T) idleCommands(d time.Duration, most int64, what string) {
	var sent int64
	for range 3 {
		if sent = t.commands(func() { t.idleFor(d) }); sent <= most {
			return
		}
		t.notef("%d commands in %v", sent, d)
	}
	t.errorf("%s in %v: want at most %d commands in one of three stretches, got %d in the last", what, d, most, sent)
}

// idleFor waits for d, or until the case ends.
func (t *T) idleFor(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
	}
}

func idleWaiter(t *T) {
	const waiters, ttls = 16, 3
	ttl := t.clampTTL(max(t.ttl(), 1500*time.Millisecond))
	key, s := t.key("idle-waiters"), t.steady(ttl)
	l := t.mustLock(s.c.Mutex(key), "a free key")
	_, cancels, ends := t.queueUp(key, waiters, ttl)
	most := t.idleHolderBudget(ttls) + int64(float64(waiters)*(ttls+1)*t.h.Budget.IdleWaiterCommands)
	t.idleCommands(ttls*ttl, most, fmt.Sprintf("a holder and %d idle waiters, IdleWaiterCommands being %v,", waiters, t.h.Budget.IdleWaiterCommands))
	s.held(l, "the idle holder")
	for i, cancel := range cancels {
		cancel()
		t.end(t.slack(), "a cancelled waiter", ends[i])
	}
	s.unlock(l, "the idle holder")
}
