package lockcmd

import (
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// change is a difference between two states of a lock.
type change struct {
	Time    time.Time          `json:"time"` // of the request, by the local clock
	Name    string             `json:"name"`
	Event   string             `json:"event"`
	Holder  *lock.Holder       `json:"holder,omitempty"`  // of held
	Before  *lock.Holder       `json:"before,omitempty"`  // of held and free: the last known holder; of left: one of several
	Waiter  *backend.Contender `json:"waiter,omitempty"`  // of waits and gone
	Waiters int                `json:"waiters,omitempty"` // their number, if known
	Error   string             `json:"error,omitempty"`   // of unseen
}

func (c *change) String() string {
	s := c.Time.Format("2006-01-02T15:04:05.000Z07:00") + " " + quoted(c.Name) + ": "
	switch c.Event {
	case "held":
		s += "held by " + holderText(c.Holder)
		if c.Before != nil {
			s += "; before by " + formerText(c.Before)
		}
	case "free":
		s += "free"
		if c.Before != nil {
			s += "; was held by " + formerText(c.Before)
		}
	case "left":
		s += "held no more by " + formerText(c.Before)
	case "waits":
		s += fmt.Sprintf("waits: %s (%d in all)", holderText(&lock.Holder{Contender: *c.Waiter}), c.Waiters)
	case "gone":
		s += fmt.Sprintf("waits no more: %s (%d left)", formerText(&lock.Holder{Contender: *c.Waiter}), c.Waiters)
	case "unseen":
		s += "no answer: " + c.Error
	}
	return s
}

// formerText is holderText without the times, which are those of a present holder.
func formerText(h *lock.Holder) string {
	c := backend.Contender{Owner: h.Owner, Metadata: h.Metadata, Share: h.Share}
	return holderText(&lock.Holder{Contender: c, Token: h.Token, Foreign: h.Foreign})
}

// changes returns the differences between two states of a lock. last is nil before the
// first answer. repeat includes the holder even if it is the same.
func changes(last *lock.Info, now lock.Info, repeat bool) []change {
	var out []change
	add := func(c change) {
		c.Name, c.Waiters = now.Name, len(now.Waiters)
		out = append(out, c)
	}
	var before lock.Info
	if last != nil {
		before = *last
	}
	held := holders(&now)
	for _, w := range without(before.Waiters, now.Waiters) {
		if !slices.ContainsFunc(held, func(h lock.Holder) bool { return h.Owner == w.Owner }) { // else the waiter got the lock
			add(change{Event: "gone", Waiter: &w})
		}
	}
	same := sameHolder(before.Holder, now.Holder)
	switch shared := len(now.Others) > 0 || len(before.Others) > 0; {
	case shared && now.Holder != nil:
		for _, h := range unlike(holders(&before), held) {
			add(change{Event: "left", Before: &h})
		}
		if last != nil && !repeat {
			held = unlike(held, holders(&before))
		}
		for _, h := range held {
			add(change{Event: "held", Holder: &h})
		}
	case !same || last == nil || repeat:
		c := change{Event: "free", Holder: now.Holder}
		if now.Holder != nil {
			c.Event = "held"
		}
		if !same {
			c.Before = before.Holder
		}
		add(c)
	}
	for _, w := range without(now.Waiters, before.Waiters) {
		add(change{Event: "waits", Waiter: &w})
	}
	return out
}

// holders returns all holders of a lock.
func holders(i *lock.Info) []lock.Holder {
	if i.Holder == nil {
		return nil
	}
	return append([]lock.Holder{*i.Holder}, i.Others...)
}

// unlike returns the holders that are not among others.
func unlike(all, others []lock.Holder) []lock.Holder {
	return slices.DeleteFunc(slices.Clone(all), func(h lock.Holder) bool {
		return slices.ContainsFunc(others, func(o lock.Holder) bool { return sameHolder(&h, &o) })
	})
}

func sameHolder(x, y *lock.Holder) bool {
	if x == nil || y == nil {
		return x == y
	}
	return x.Owner == y.Owner && x.Token == y.Token
}

// without returns the elements of all that are not in others.
func without(all, others []backend.Contender) []backend.Contender {
	exclude := map[string]bool{}
	for _, c := range others {
		exclude[c.Owner] = true
	}
	var out []backend.Contender
	for _, c := range all {
		if !exclude[c.Owner] {
			out = append(out, c)
		}
	}
	return out
}
