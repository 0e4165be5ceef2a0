package queuetest

import (
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// finish ends all attempts of a run and compares the events. To know that no others are on their way, it makes the
// service push a grant to each process: the events of a key arrive in order.
func (r *run) finish() {
	r.stage = ending
	for i := range r.processes {
		r.step(op{action: connect, process: i})
	}
	for i, a := range r.seq.attempts {
		if r.uses(i) {
			r.step(op{action: abandon, process: a.process, attempt: i})
		}
	}
	r.stage = marking
	for i, p := range r.processes {
		if p.pusher == nil {
			continue
		}
		other := (i + 1) % len(r.processes)
		holder := r.add(attemptSpec{process: other, ttl: time.Minute})
		waiter := r.add(attemptSpec{process: i, ttl: time.Minute})
		r.step(op{action: acquire, process: other, attempt: holder})
		r.step(op{action: acquire, process: i, attempt: waiter, mode: queue.Join})
		if r.step(op{action: release, process: other, attempt: holder}) {
			p.recorder.wait(r.owners[waiter], func(events []Event) bool { return len(events) > 0 })
		}
		r.step(op{action: release, process: i, attempt: waiter})
	}
	if r.failure == "" && !r.discarded {
		r.compareEvents()
		return
	}
	for name, reconnect := range r.connects {
		if reconnect != nil {
			reconnect()
			r.connects[name] = nil
		}
	}
	for i, owner := range r.owners { // what is left would keep a place at the service
		e := queue.End{Request: backend.Request{Key: r.key, Owner: owner}, Kind: queue.Abandon}
		r.processes[r.attempts[i].process].End(r.ctx, []queue.End{e})
	}
	for _, p := range r.processes {
		for _, owner := range r.owners {
			p.recorder.take(owner)
		}
	}
}

// settle waits for the events that a process should have got.
func (r *run) settle(name string, p process) {
	if p.pusher == nil {
		return
	}
	for _, owner := range r.owners {
		n := 0
		for _, e := range r.wants {
			if e.Process == name && e.Owner == owner {
				n++
			}
		}
		p.recorder.wait(owner, func(events []Event) bool { return len(events) >= n })
	}
}

// compareEvents compares the events that each process has got of each attempt. Those of one operation may come in any
// order, so events of different kinds are compared apart.
func (r *run) compareEvents() {
	for i, p := range r.processes {
		for _, owner := range r.owners {
			got := p.recorder.take(owner)
			var want []Event
			for _, e := range r.wants {
				if e.Process == processName(i) && e.Owner == owner {
					want = append(want, e)
				}
			}
			if p.pusher == nil {
				want = nil
			}
			if !r.equalEvents(want, got) {
				r.fail("events of %s at %s:\n    want %s\n    got  %s",
					r.formatNames(owner), processName(i), r.formatEvents(want), r.formatEvents(got))
			}
		}
	}
}

func (r *run) equalEvents(want, got []Event) bool {
	byKind := func(a, b Event) int { return strings.Compare(string(a.Kind), string(b.Kind)) }
	slices.SortStableFunc(want, byKind)
	slices.SortStableFunc(got, byKind)
	return slices.EqualFunc(want, got, func(want, got Event) bool {
		missing, wrong := r.cmp.diff(eventFields(want), eventFields(got))
		return want.Kind == got.Kind && want.Key == got.Key && len(missing) == 0 && len(wrong) == 0
	})
}
