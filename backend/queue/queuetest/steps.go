package queuetest

import (
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// begin takes the steps 1 to 3 of an operation. The sender "" is none.
func (r *Reference) begin(now time.Duration, key, sender string) {
	r.op = operation{now: now, key: key}
	// 1. Expire.
	before := len(r.holders)
	r.holders = slices.DeleteFunc(r.holders, func(h holder) bool {
		over := r.due(h.end)
		if over && h.unclaimed {
			add(&r.suspects, h.process)
			r.lapsed = true
		}
		return over
	})
	if len(r.holders) == 0 && len(r.waiters) == 0 {
		r.suspects, r.lapsed, r.informed = nil, false, nil
	}
	// 2. Note.
	if len(r.holders) == before && r.watcher() != "" {
		r.op.watcher, r.op.end = r.watcher(), r.first().end
	}
	// 3. Life.
	if sender == "" {
		return
	}
	for i := range r.holders {
		if h := &r.holders[i]; h.process == sender && h.unclaimed {
			h.unclaimed, r.lapsed = false, false
		}
	}
	delete(r.suspects, sender)
	for i := range r.waiters {
		if w := &r.waiters[i]; w.process == sender {
			w.asked = nil
		}
	}
}

// admit is step 5.
func (r *Reference) admit() {
	removed := map[string]bool{} // processes
	remove := func(w waiter) {
		r.waiters = r.waiters[1:]
		if !removed[w.process] {
			removed[w.process] = true
			r.send(Event{Kind: Removed, Process: w.process, Key: r.op.key, Owner: w.Owner})
		}
	}
	for len(r.waiters) > 0 {
		w := r.waiters[0]
		switch {
		case r.suspects[w.process], w.process != r.op.sender && r.Reachable != nil && !r.Reachable(w.process):
			remove(w)
		case r.fits(w.Share):
			r.waiters = r.waiters[1:]
			r.grant(w)
		case w.asked != nil && r.due(*w.asked+queue.ProvisionalTTL):
			add(&r.suspects, w.process)
			remove(w)
		default:
			return
		}
	}
}

// grant makes w a holder. It is not in the queue any more.
func (r *Reference) grant(w waiter) {
	now := r.op.now
	r.last = max(r.last+1, uint64(now.Microseconds()))
	var taken []int
	for _, h := range r.holders {
		taken = append(taken, h.Slots...)
	}
	h := holder{
		Holder:  backend.Holder{Contender: w.Contender, Token: r.last, Slots: w.Share.FreeSlots(taken)},
		process: w.process, since: now, end: now + w.ttl,
	}
	if w.Owner != r.op.self {
		lease := queue.Provisional(w.ttl, r.lapsed)
		h.end, h.unclaimed = now+lease, true
		if r.op.pushed == 0 || lease < r.op.pushed {
			r.op.pushed = lease
		}
		r.send(Event{Kind: Granted, Process: w.process, Key: r.op.key, Owner: w.Owner, Grant: queue.Grant{
			Key: r.op.key, Owner: w.Owner, Token: h.Token, Slots: h.Slots, Expires: h.end, TTL: lease,
		}})
	}
	r.holders = append(r.holders, h)
}

// inform is step 6.
func (r *Reference) inform() {
	next, first := r.next(), r.first()
	if next == "" {
		return
	}
	changed := r.op.watcher != ""
	if !first.unclaimed {
		changed = next != r.op.watcher || r.muchEarlier(first.end, r.op.end)
	}
	all := r.op.pushed > 0 && (r.informed == nil || r.due(*r.informed+queue.InformEvery)) || r.op.leaves && first.unclaimed
	if all {
		now := r.op.now
		r.informed = &now
	}
	seen := map[string]bool{first.process: true}
	for _, w := range r.waiters[:min(len(r.waiters), queue.Informed)] {
		if w.Owner != r.op.self && (changed && w.Owner == next || all && !seen[w.process]) {
			r.send(Event{Kind: LeaseEnds, Process: w.process, Owner: w.Owner, Left: first.end - r.op.now})
		}
		seen[w.process] = true
	}
}

// watcher returns the owner of the watcher, or "".
func (r *Reference) watcher() string {
	if first := r.first(); first == nil || first.unclaimed {
		return ""
	}
	return r.next()
}

// next returns the owner of the next waiter, or "".
func (r *Reference) next() string {
	first := r.first()
	if first == nil || len(r.waiters) == 0 {
		return ""
	}
	for _, w := range r.waiters[:min(len(r.waiters), queue.Informed)] {
		if w.process != first.process {
			return w.Owner
		}
	}
	return r.waiters[0].Owner
}

// first returns the holder whose lease ends first, or nil.
func (r *Reference) first() *holder {
	var first *holder
	for i := range r.holders {
		if h := &r.holders[i]; first == nil || r.earlier(h.end, first.end) {
			first = h
		}
	}
	return first
}

func (r *Reference) firstWaiter() *waiter {
	if len(r.waiters) == 0 {
		return nil
	}
	return &r.waiters[0]
}

func (r *Reference) holder(owner string) *holder {
	i := slices.IndexFunc(r.holders, func(h holder) bool { return h.Owner == owner })
	if i < 0 {
		return nil
	}
	return &r.holders[i]
}

func (r *Reference) fits(s backend.Share) bool {
	held := make([]backend.Share, 0, len(r.holders))
	for _, h := range r.holders {
		held = append(held, h.Share)
	}
	return s.Fits(held)
}

// at returns h as an answer of that time has it.
func (h *holder) at(now time.Duration) backend.Holder {
	found := h.Holder
	found.Age, found.Left = now-h.since, h.end-now
	return found
}

func (r *Reference) send(e Event) { r.op.events = append(r.op.events, e) }

// All comparisons of times that decide something are made by earlier, muchEarlier and due, for closest.

// earlier reports whether the end a is before the end b. Rounding keeps the order of two ends, but may make them equal.
func (r *Reference) earlier(a, b time.Duration) bool {
	if a < b {
		r.compared(b - a)
	}
	return a < b
}

// muchEarlier reports whether the end a is before the end b by more than queue.InformSlack. Both may be rounded.
func (r *Reference) muchEarlier(a, b time.Duration) bool {
	d := b - a - queue.InformSlack
	if a != b {
		r.compared(d.Abs())
	}
	return d > 0
}

// due reports whether t has come.
func (r *Reference) due(t time.Duration) bool {
	r.compared((t - r.op.now).Abs())
	return t <= r.op.now
}

func (r *Reference) compared(d time.Duration) {
	if d > 0 && (r.closest == 0 || d < r.closest) {
		r.closest = d
	}
}

func add(set *map[string]bool, member string) {
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[member] = true
}
