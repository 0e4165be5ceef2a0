package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var deadWaiterCases = []Case{
	{
		ID:     "waiting/12-dead-waiter",
		Title:  "a waiter that died does not stall the waiters behind it beyond its bound, nor reorder them",
		Clause: "A dead waiter holds up the queue for at most its TTL.",
		needs:  []need{needQueue},
		run:    func(t *T) { t.deadWaiters(deadQueue{processes: 1, waiters: 1, ttl: t.ttl()}) },
	},
	{
		ID:     "waiting/12-dead-waiters-of-one-process",
		Title:  "several waiters of one process that was killed, or stopped, delay the waiters behind them by at most the declared time; once a stopped process continues, each of its waiters gets the key",
		Clause: "Budget.DeadProcess is for how long, at most, all dead waiters of one process together delay the waiters behind them.",
		needs:  []need{needQueue, needDeadProcess},
		run:    func(t *T) { t.deadWaiters(deadQueue{processes: 1, waiters: 4, ttl: t.clampTTL(30 * time.Second)}) },
	},
	{
		ID:     "waiting/12-dead-processes",
		Title:  "waiters of several processes that were killed, or stopped, delay the waiters behind them by at most the declared time each",
		Clause: "Dead waiters of several processes delay the waiters behind them by at most Budget.DeadProcess for each process.",
		needs:  []need{needQueue, needDeadProcess},
		run:    func(t *T) { t.deadWaiters(deadQueue{processes: 3, waiters: 1, ttl: t.clampTTL(30 * time.Second)}) },
	},
}

var needDeadProcess = needBudget("DeadProcess", func(b Budget) float64 { return float64(b.DeadProcess) })

// deadQueue is a queue that begins with waiters of processes that die.
type deadQueue struct {
	processes, waiters int // waiters of each process
	ttl                time.Duration
}

// bound returns for how long the dead waiters may delay the waiters behind them.
func (q deadQueue) bound(t *T) time.Duration {
	if t.caps.Loss == backend.LossSession { // the sessions end at the same time
		return q.ttl + t.slack()
	}
	each := t.h.Budget.DeadProcess
	if each == 0 {
		each = q.ttl
	}
	return min(time.Duration(q.processes)*each, q.ttl) + t.slack()
}

// deadWaiters kills and, if the service can notice that, stops processes whose waiters are at
// the head of queues, and frees the keys.
func (t *T) deadWaiters(queues ...deadQueue) {
	most := 0
	for _, q := range queues {
		most = max(most, q.processes)
	}
	var rounds []func() // the second halves
	round := func(how string, q deadQueue, clients []*mortal) (begin func()) {
		alive := q.ttl
		if t.caps.Loss == backend.LossSession { // and that of a dead process lasts for its TTL
			q.ttl = min(q.ttl, t.clampTTL(3*time.Second))
			alive = t.clampTTL(10 * time.Second) // a waiter whose session ends on a busy machine loses its place
		}
		key := t.key("dead")
		l := t.mustLock(t.client().Mutex(key), "a free key")
		for _, c := range clients[:q.processes] {
			for range q.waiters {
				c.wait(key, q.ttl, lock.Share{})
			}
		}
		order, _, ends := t.queueUp(key, 4, alive)
		what := fmt.Sprintf("%d waiters of each of %d %s processes, with a TTL of %v", q.waiters, q.processes, how, q.ttl)
		return func() {
			start := time.Now()
			t.mustUnlock(l, "the holder")
			rounds = append(rounds, func() {
				t.servedBehind(what, start, q.bound(t), order, ends)
				if how == "stopped" {
					for _, c := range clients[:q.processes] {
						c.process.servedAfterStop(q)
					}
				}
			})
		}
	}
	var begin []func()
	clients := t.mortals(most)
	for _, q := range queues {
		begin = append(begin, round("killed", q, clients))
	}
	die := func() {
		for _, c := range clients {
			c.kill()
		}
	}
	// Without DeadProcess a stopped waiter may delay the others for as long as they believe the lease to last.
	if s, _ := needSignals.check(t); s == "" && clients[0].process != nil && t.expires() && t.h.Budget.DeadProcess > 0 {
		killed, stopped := die, t.mortals(most)
		for _, q := range queues {
			begin = append(begin, round("stopped", q, stopped))
		}
		die = func() {
			killed()
			for _, c := range stopped {
				if err := c.process.stop(); err != nil {
					t.fatalf("worker: %v", err)
				}
			}
		}
	}
	die()
	for _, f := range begin {
		f()
	}
	for _, f := range rounds {
		f()
	}
}

// servedBehind checks that live waiters behind dead ones are served in time and in order.
func (t *T) servedBehind(what string, start time.Time, bound time.Duration, order func() []int, ends []chan locked) {
	for i, end := range ends {
		name := fmt.Sprintf("waiter %d behind %s", i, what)
		if got := t.end(bound-time.Since(start), name, end); got.err != nil {
			t.errorf("%s: want a grant, got %v", name, got.err)
		} else if i == 0 {
			t.notef("%s: granted after %v", name, got.at.Sub(start).Round(time.Millisecond))
		}
	}
	if got, want := order(), []int{0, 1, 2, 3}; t.caps.Order == backend.FIFO && !slices.Equal(got, want) {
		t.errorf("order of service behind %s: want that of arrival, %v, got %v", what, want, got)
	}
}

// servedAfterStop continues the process, whose waiters lost their places meanwhile. The key is free.
func (p *process) servedAfterStop(q deadQueue) {
	p.resume()
	for range q.waiters {
		if got := p.expect("visited", q.bound(p.t)); got != "ok" {
			p.t.errorf("Unlock by a process that was stopped: want nil, got %s", got)
		}
	}
}

// mortal is a client of the service that can die.
type mortal struct {
	wait    func(key string, ttl time.Duration, s lock.Share) // begins to wait for a key that is held
	kill    func()
	process *process // nil of a session, which cannot be stopped
}

// mortals returns processes where the suite can start them, else sessions, which die when
// they are closed during a wait.
func (t *T) mortals(n int) (all []*mortal) {
	if t.h.Worker == nil || t.caps.Scope < backend.ScopeMachine {
		for range n {
			all = append(all, t.mortalSession())
		}
		return all
	}
	ps := make([]*process, n)
	for i := range ps {
		ps[i] = t.begin(t.h.Worker())
	}
	for _, p := range ps {
		p.expect("ready", time.Minute)
		all = append(all, &mortal{wait: p.waitToVisit, kill: p.kill, process: p})
	}
	return all
}

func (t *T) mortalSession() *mortal {
	b := t.open()
	wait := func(key string, ttl time.Duration, s lock.Share) {
		req := request(key, ttl)
		req.Share = s
		t.acquireRaw(context.WithoutCancel(t.ctx), b.(backend.Waiter), req)
	}
	return &mortal{wait: wait, kill: func() {
		ctx, cancel := context.WithTimeout(t.ctx, t.slack())
		defer cancel()
		_ = b.Close(ctx)
	}}
}
