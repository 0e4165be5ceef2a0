package queuetest

import (
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// Reference is the rule of one key as code without locks and clocks: what a [queue.Service] answers to each operation,
// and which events it sends. The zero Reference is a key that was never used. The caller passes the time of the
// service and the process that sends the request.
//
// # State
//
//	holders   in the order of their tokens; of each: owner, process, share, metadata, token, slots, since, end, unclaimed
//	waiters   in the order in which they came; of each: owner, process, share, metadata, ttl, asked (a time, or not)
//	suspects  a set of processes
//	lapsed    the last pushed grant has ended unclaimed
//	informed  a time, or never
//	last      the last token
//	ended     a set of owners
//
// A service may forget an owner of ended when no request of its attempt can arrive any more (Lateness of
// backend.Capabilities). It may forget the rest of a key without holders and waiters when its clock, which must never
// be set back, has passed last microseconds.
//
// A holder is unclaimed from when its grant was pushed until its process shows that it is alive. At most one waiter is
// asked: the first.
//
// FIRST is the holder with the earliest end; of several with the same end, the one with the lowest token.
//
// The NEXT waiter is the earliest, among the first Informed (16), whose process is not that of FIRST; if there is none,
// it is the first waiter. It is the WATCHER if FIRST is not unclaimed. While it is there is no watcher: the process whose
// operation pushed that grant looks when it ends (Pass), and most grants are claimed or released before.
//
// A waiter or an attempt FITS if backend.Share.Fits says so beside all holders.
//
// # Steps
//
// SELF is the attempt of an Acquire; other operations have none. The SENDER is the process that sends an Acquire, a
// Renew, a Release, an Abandon or a Downgrade. Break and Pass have none: they show the life of no process.
//
// Every operation takes these steps, with two exceptions that do nothing at all: an Acquire whose owner is in ended is
// Refused, and a Downgrade whose request has a share of permits is an ErrInvalid.
//
//  1. Expire. Remove each holder with end <= now. For each of them that is unclaimed, add its process to suspects, and
//     set lapsed. Then, if there are neither holders nor waiters: suspects is empty, lapsed is not set, and informed is
//     never. So a free key needs nothing but last and ended.
//  2. Note the watcher and the end of FIRST, for step 6. If step 1 has removed a holder, note that there is no watcher.
//  3. Life, if there is a sender. If a holder of the sender is unclaimed, lapsed is not set any more. No holder of it
//     is unclaimed any more, no waiter of it is asked any more, and it is not in suspects.
//  4. What the operation does: see below.
//  5. Admit. As long as there are waiters, look at the first. If its process is in suspects, or cannot be reached and
//     is not the sender of an Acquire: remove it. Else, if it fits: grant it the key. Else, if it was asked and
//     asked+ProvisionalTTL <= now: add its process to suspects and remove it. Else stop. The process of waiters that were
//     removed gets the event Removed for the first of them.
//  6. Inform, if there are holders and waiters. An event LeaseEnds with end-now of FIRST goes, once, to each of these
//     waiters but SELF (its answer says it):
//     - the watcher, if step 2 noted another one or none, or if the end of FIRST is earlier than noted by more than
//     InformSlack;
//     - the next waiter, if FIRST is unclaimed and step 2 noted a watcher;
//     - if step 5 has pushed a grant, and informed is never or informed+InformEvery <= now, or if the operation is a Pass
//     of a process that leaves and FIRST is unclaimed: of each process other than that of FIRST, the earliest waiter
//     among the first Informed. Set informed to now.
//
// To grant the key: the token is the greater of last+1 and now in microseconds, and becomes last. The slots are those
// of backend.Share.FreeSlots. For SELF, end is now+ttl. For another waiter the grant is pushed: it is unclaimed, its
// lease is queue.Provisional(ttl, lapsed), and its process gets the event Granted. Either way it stops waiting.
//
// An event for a process that cannot be reached is lost.
//
// A Service may do less at once: stop step 5 at a number of grants, and answer that there are more (see [queue.Answer]); stop
// it while hundreds of grants are unclaimed, since a claim goes on with it; and look at a part of hundreds in step 3.
//
// # Operations
//
// These are step 4 and the answers. The field Pass of an answer is the shortest lease of the grants that step 5 has
// pushed, or zero.
//
// Acquire: NoPlace is whether the attempt does not wait. If it holds the key, its end becomes the greater of end and
// now+ttl. After step 5, if it neither holds nor waits: if there are no waiters and it fits, grant it the key; else,
// unless the mode is NoQueue, it becomes the last waiter. Then comes step 6, and the answer:
//
//   - If it holds the key: Granted, Token and Slots; Left is its end-now.
//   - If not: Holder is FIRST, and Left is end-now of FIRST. Watch is whether it is the watcher, or FIRST is unclaimed.
//     (An attempt that does not wait is never the watcher.)
//   - If not, but it fits, and the first waiter is of another process: if that one is not asked, it is asked from now,
//     and its process gets the event Asked. Ask is asked+ProvisionalTTL-now. (The first waiter does not fit.)
//
// Renew: if the owner holds the key, its end becomes now+ttl, or the greater of end and now+ttl if Exactly is not set.
// If it does not hold the key, the answer is ErrLost.
//
// Release and Abandon, which are the same: Held is whether the owner holds the key. Remove it from holders and waiters.
// If Late is set, add it to ended.
//
// Downgrade: Held is whether the owner holds the key. If its share is exclusive, that becomes backend.Reader.
//
// Break: remove the holder with that owner, or all holders if the owner is "". The process of each gets the event Lost.
// Held is whether one was removed. Holder is the one of them with the lowest token; if none was removed, it is FIRST.
//
// Pass: nothing. The field Pass of its answer is the smallest end-now of the holders that are unclaimed, or zero.
type Reference struct {
	// Reachable reports whether a process can be reached: not if the service sees that the connection for its events has
	// ended. A process that has none, because it polls, counts as reachable. Nil: the service cannot see it.
	Reachable func(process string) bool

	holders  []holder
	waiters  []waiter
	suspects map[string]bool
	lapsed   bool
	informed *time.Duration // nil: never
	last     uint64
	ended    map[string]bool

	op      operation
	closest time.Duration // the smallest difference, but zero, of times that were compared; zero if there was none
}

type holder struct {
	backend.Holder // without Age and Left
	process        string
	since, end     time.Duration
	unclaimed      bool
}

type waiter struct {
	backend.Contender
	process string
	ttl     time.Duration
	asked   *time.Duration
}

// operation is what the steps of one operation share.
type operation struct {
	now          time.Duration
	key          string
	self, sender string // of an Acquire; "" otherwise
	watcher      string // as noted by step 2; "" if there was none
	end          time.Duration
	leaves       bool          // it is a Pass of a process that leaves
	pushed       time.Duration // the shortest lease of a grant that was pushed; zero if there was none
	events       []Event
}

// Acquire is Service.Acquire.
func (r *Reference) Acquire(now time.Duration, process string, a queue.Attempt) (queue.Answer, []Event) {
	if r.ended[a.Owner] {
		return queue.Answer{Now: now, Refused: true}, nil
	}
	r.begin(now, a.Key, process)
	r.op.self, r.op.sender = a.Owner, process
	self := waiter{backend.Contender{Owner: a.Owner, Metadata: a.Metadata, Share: a.Share}, process, a.TTL, nil}
	waits := slices.ContainsFunc(r.waiters, func(w waiter) bool { return w.Owner == a.Owner })
	if h := r.holder(a.Owner); h != nil {
		h.end = max(h.end, now+a.TTL)
	}
	r.admit()
	if r.holder(a.Owner) == nil && !waits {
		if len(r.waiters) == 0 && r.fits(a.Share) {
			r.grant(self)
		} else if a.Mode != queue.NoQueue {
			r.waiters = append(r.waiters, self)
		}
	}
	r.inform()
	ans := queue.Answer{Now: now, NoPlace: !waits, Pass: r.op.pushed}
	if h := r.holder(a.Owner); h != nil {
		ans.Granted, ans.Token, ans.Slots, ans.Left = true, h.Token, h.Slots, h.end-now
		return ans, r.op.events
	}
	first := r.first()
	ans.Holder, ans.Left = first.at(now), first.end-now
	ans.Watch = r.watcher() == a.Owner || first.unclaimed
	if w := r.firstWaiter(); w != nil && w.process != process && r.fits(a.Share) {
		if w.asked == nil {
			w.asked = &now
			r.send(Event{Kind: Asked, Process: w.process, Key: a.Key, Owner: w.Owner})
		}
		ans.Ask = *w.asked + queue.ProvisionalTTL - now
	}
	return ans, r.op.events
}

// Renew is Service.Renew of one grant.
func (r *Reference) Renew(now time.Duration, process string, hold queue.Hold) (queue.Renewed, []Event) {
	r.begin(now, hold.Key, process)
	renewed := queue.Renewed{Now: now}
	switch h := r.holder(hold.Owner); {
	case h == nil:
		renewed.Err = backend.ErrLost
	case hold.Exactly:
		h.end = now + hold.TTL
	default:
		h.end = max(h.end, now+hold.TTL)
	}
	r.admit()
	r.inform()
	renewed.Pass = r.op.pushed
	return renewed, r.op.events
}

// End is Service.End of one end.
func (r *Reference) End(now time.Duration, process string, e queue.End) (queue.Ended, []Event) {
	if e.Kind == queue.Downgrade && e.Share.Capacity > 0 {
		return queue.Ended{Now: now, Err: backend.Invalid("share", e.Share, "an exclusive grant or a reader")}, nil
	}
	if e.Kind == queue.Break {
		process = ""
	}
	r.begin(now, e.Key, process)
	ended := queue.Ended{Now: now}
	h := r.holder(e.Owner)
	switch e.Kind {
	case queue.Downgrade:
		if h != nil && h.Share.Exclusive() {
			h.Share = backend.Reader
		}
		ended.Held = h != nil
	case queue.Break:
		ended.Held, ended.Holder = r.breakGrants(e.Owner)
	default:
		ended.Held = h != nil
		r.holders = slices.DeleteFunc(r.holders, func(h holder) bool { return h.Owner == e.Owner })
		r.waiters = slices.DeleteFunc(r.waiters, func(w waiter) bool { return w.Owner == e.Owner })
		if e.Late {
			add(&r.ended, e.Owner)
		}
	}
	r.admit()
	r.inform()
	ended.Pass = r.op.pushed
	return ended, r.op.events
}

func (r *Reference) breakGrants(owner string) (held bool, answer *backend.Holder) {
	if h := r.first(); h != nil {
		found := h.at(r.op.now)
		answer = &found
	}
	kept := r.holders[:0:0]
	for _, h := range r.holders {
		if owner != "" && h.Owner != owner {
			kept = append(kept, h)
			continue
		}
		if !held {
			found := h.at(r.op.now)
			held, answer = true, &found
		}
		r.send(Event{Kind: Lost, Process: h.process, Owner: h.Owner})
	}
	r.holders = kept
	return held, answer
}

// Pass is Service.Pass.
func (r *Reference) Pass(now time.Duration, key string, leaves bool) (queue.Passed, []Event) {
	r.begin(now, key, "")
	r.op.leaves = leaves
	r.admit()
	r.inform()
	passed := queue.Passed{Now: now}
	for _, h := range r.holders {
		if left := h.end - now; h.unclaimed && (passed.Pass == 0 || left < passed.Pass) {
			passed.Pass = left
		}
	}
	return passed, r.op.events
}
