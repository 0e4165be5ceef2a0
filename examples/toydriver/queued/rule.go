package queued

import (
	"cmp"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// key is the state of a key. This file is the rule as the comment of queuetest.Reference states it: the numbers are
// those of its steps. Times are by the clock of the server, and never zero.
type key struct {
	holders  []*attempt // in the order of their tokens
	waiters  []*attempt // in the order in which they came
	suspects map[string]bool
	lapsed   bool
	informed time.Duration
	last     uint64

	reachable func(process string) bool
	send      func(process string, e event)
}

// attempt is a holder or a waiter.
type attempt struct {
	operation // that has made it
	process   string

	asked     time.Duration // of a waiter; zero: it is not
	token     uint64        // of a holder, as the following
	slots     []int
	end       time.Duration
	unclaimed bool
}

// do executes an operation that a process has sent.
func (k *key) do(now time.Duration, process string, op operation) (r result) {
	self, sender := "", "" // of an acquire
	if op.Kind == acquire {
		self, sender = op.Owner, process
	}
	expired := k.expire(now)             // step 1
	watcher, end := k.watcher(), k.end() // step 2
	if expired {
		watcher = nil
	}
	if op.Kind != breakAny && op.Kind != pass {
		k.alive(process) // step 3
	}
	r.NoPlace = find(k.waiters, self) == nil
	r.Held, r.Broken = k.execute(now, op) // step 4
	r.Pass = k.admit(now, self, sender)   // step 5
	if op.Kind == acquire {
		k.enter(now, &attempt{operation: op, process: process})
	}
	k.inform(op, now, watcher, end, r.Pass > 0) // step 6
	switch op.Kind {
	case acquire:
		k.answer(now, process, op, &r.Answer)
	case pass:
		r.Pass = k.unclaimed(now)
	}
	r.Now = now
	return r
}

// expire is step 1. It reports whether a lease has ended.
func (k *key) expire(now time.Duration) (ended bool) {
	k.holders = slices.DeleteFunc(k.holders, func(h *attempt) bool {
		if h.end > now {
			return false
		}
		if h.unclaimed {
			k.suspect(h.process)
			k.lapsed = true
		}
		ended = true
		return true
	})
	if len(k.holders)+len(k.waiters) == 0 {
		k.suspects, k.lapsed, k.informed = nil, false, 0
	}
	return ended
}

// alive is step 3.
func (k *key) alive(process string) {
	for _, h := range k.holders {
		if h.process == process && h.unclaimed {
			k.lapsed, h.unclaimed = false, false
		}
	}
	for _, w := range k.waiters {
		if w.process == process {
			w.asked = 0
		}
	}
	delete(k.suspects, process)
}

// execute is step 4. It returns the fields of an answer.
func (k *key) execute(now time.Duration, op operation) (held bool, broken *backend.Holder) {
	h := find(k.holders, op.Owner)
	switch {
	case op.Kind == breakAny:
		return k.breakHolders(op.Owner)
	case op.Kind == release:
		k.holders, k.waiters = without(k.holders, op.Owner), without(k.waiters, op.Owner)
	case h == nil:
	case op.Kind == renew && op.Exactly:
		h.end = now + op.TTL
	case op.Kind == renew, op.Kind == acquire:
		h.end = max(h.end, now+op.TTL)
	case op.Kind == downgrade && h.Share.Exclusive():
		h.Share = backend.Reader
	}
	return h != nil, nil
}

func (k *key) breakHolders(owner string) (held bool, holder *backend.Holder) {
	if len(k.holders) > 0 {
		holder = k.first().holder()
	}
	k.holders = slices.DeleteFunc(k.holders, func(h *attempt) bool {
		if owner != "" && h.Owner != owner {
			return false
		}
		k.send(h.process, event{Kind: lost, Owner: h.Owner})
		if !held {
			held, holder = true, h.holder()
		}
		return true
	})
	return held, holder
}

// admit is step 5. It returns the shortest lease of the grants that it has pushed, zero if there is none.
func (k *key) admit(now time.Duration, self, sender string) (shortest time.Duration) {
	dismissed := map[string]bool{} // processes
	dismiss := func(w *attempt) {
		if !dismissed[w.process] {
			k.send(w.process, event{Kind: removed, Key: w.Key, Owner: w.Owner})
		}
		dismissed[w.process] = true
	}
	for len(k.waiters) > 0 {
		w := k.waiters[0]
		switch {
		case k.suspects[w.process] || w.process != sender && !k.reachable(w.process):
			dismiss(w)
		case k.fits(w) && w.Owner == self:
			k.grant(now, w, w.TTL)
		case k.fits(w):
			lease := queue.Provisional(w.TTL, k.lapsed)
			k.grant(now, w, lease)
			w.unclaimed = true
			k.send(w.process, event{
				Kind: granted, Key: w.Key, Owner: w.Owner, Token: w.token, Slots: w.slots, Expires: w.end, Lease: lease,
			})
			if shortest == 0 || lease < shortest {
				shortest = lease
			}
		case w.asked != 0 && w.asked+queue.ProvisionalTTL <= now:
			k.suspect(w.process)
			dismiss(w)
		default:
			return shortest
		}
		k.waiters = k.waiters[1:]
	}
	return shortest
}

// enter makes an attempt that neither holds nor waits a holder or a waiter, if it may be one.
func (k *key) enter(now time.Duration, a *attempt) {
	switch {
	case find(k.holders, a.Owner) != nil, find(k.waiters, a.Owner) != nil:
	case len(k.waiters) == 0 && k.fits(a):
		k.grant(now, a, a.TTL)
	case !a.NoQueue:
		k.waiters = append(k.waiters, a)
	}
}

func (k *key) grant(now time.Duration, a *attempt, lease time.Duration) {
	var taken []int
	for _, h := range k.holders {
		taken = append(taken, h.slots...)
	}
	k.last = max(k.last+1, uint64(now.Microseconds()))
	a.token, a.slots, a.end = k.last, a.Share.FreeSlots(taken), now+lease
	k.holders = append(k.holders, a)
}

// inform is step 6. The watcher and the end of the first lease are those of step 2.
func (k *key) inform(op operation, now time.Duration, watcher *attempt, end time.Duration, pushed bool) {
	if len(k.holders) == 0 || len(k.waiters) == 0 {
		return
	}
	var to []*attempt
	unclaimed, next := k.first().unclaimed, k.next()
	if unclaimed && watcher != nil || !unclaimed && (next != watcher || k.end() < end-queue.InformSlack) {
		to = append(to, next)
	}
	if pushed && (k.informed == 0 || k.informed+queue.InformEvery <= now) || op.Leaves && unclaimed {
		k.informed = now
		seen := map[string]bool{k.first().process: true}
		for _, w := range k.waiters[:min(len(k.waiters), queue.Informed)] {
			if !seen[w.process] && !slices.Contains(to, w) {
				to = append(to, w)
			}
			seen[w.process] = true
		}
	}
	for _, w := range to {
		if op.Kind != acquire || w.Owner != op.Owner {
			k.send(w.process, event{Kind: leaseEnds, Owner: w.Owner, Left: k.end() - now})
		}
	}
}

// answer sets what an acquire returns.
func (k *key) answer(now time.Duration, process string, op operation, a *queue.Answer) {
	if h := find(k.holders, op.Owner); h != nil {
		a.Granted, a.Token, a.Slots, a.Left = true, h.token, h.slots, h.end-now
		return
	}
	first := k.first()
	a.Holder, a.Left = *first.holder(), first.end-now
	watcher := k.watcher()
	a.Watch = first.unclaimed || watcher != nil && watcher.Owner == op.Owner
	if len(k.waiters) == 0 {
		return
	}
	if w := k.waiters[0]; w.process != process && k.fits(&attempt{operation: op}) {
		if w.asked == 0 {
			w.asked = now
			k.send(w.process, event{Kind: asked, Key: w.Key, Owner: w.Owner})
		}
		a.Ask = w.asked + queue.ProvisionalTTL - now
	}
}

// unclaimed returns in how long the shortest grant ends that was pushed and is not claimed, zero if there is none.
func (k *key) unclaimed(now time.Duration) (shortest time.Duration) {
	for _, h := range k.holders {
		if left := h.end - now; h.unclaimed && (shortest == 0 || left < shortest) {
			shortest = left
		}
	}
	return shortest
}

// first returns the holder whose lease ends first. There is a holder.
func (k *key) first() *attempt {
	return slices.MinFunc(k.holders, func(a, b *attempt) int { return cmp.Compare(a.end, b.end) })
}

// end returns when the first lease ends, zero if there is none.
func (k *key) end() time.Duration {
	if len(k.holders) == 0 {
		return 0
	}
	return k.first().end
}

// watcher returns the waiter that is to ask when the first lease ends, nil if there is none.
func (k *key) watcher() *attempt {
	if len(k.holders) == 0 || len(k.waiters) == 0 || k.first().unclaimed {
		return nil
	}
	return k.next()
}

// next returns the waiter that is the watcher, or is to be when FIRST is claimed.
func (k *key) next() *attempt {
	holder := k.first().process
	near := k.waiters[:min(len(k.waiters), queue.Informed)]
	if i := slices.IndexFunc(near, func(w *attempt) bool { return w.process != holder }); i >= 0 {
		return near[i]
	}
	return near[0]
}

func (k *key) fits(a *attempt) bool {
	held := make([]backend.Share, len(k.holders))
	for i, h := range k.holders {
		held[i] = h.Share
	}
	return a.Share.Fits(held)
}

func (k *key) suspect(process string) {
	if k.suspects == nil {
		k.suspects = map[string]bool{}
	}
	k.suspects[process] = true
}

func (a *attempt) holder() *backend.Holder {
	c := backend.Contender{Owner: a.Owner, Metadata: a.Metadata, Share: a.Share}
	return &backend.Holder{Contender: c, Token: a.token}
}

func find(of []*attempt, owner string) *attempt {
	if i := slices.IndexFunc(of, func(a *attempt) bool { return a.Owner == owner }); i >= 0 {
		return of[i]
	}
	return nil
}

func without(of []*attempt, owner string) []*attempt {
	return slices.DeleteFunc(of, func(a *attempt) bool { return a.Owner == owner })
}
