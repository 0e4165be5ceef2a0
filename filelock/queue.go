package filelock

import (
	"iter"
	"math"
	"slices"

	"github.com/interlock-go/lock/backend"
)

// place is where a request is in the queue.
type place struct {
	before uint64 // the ticket that it waits for, or anyTicket; 0 if it is granted
	slots  []int  // of permits that are granted
}

// anyTicket is what the first waiter for permits waits for: the end of any ticket.
const anyTicket = math.MaxUint64

// admission decides, over the live tickets of a lock in the order of their numbers, which of them
// hold it: the longest prefix that fits. Numbers rise and the dead stay dead, so the tickets before
// a ticket can only become fewer, and a ticket that holds the lock holds it until its end,
// whatever was read before or after. So this needs no guard, and no file says who holds the lock.
type admission struct {
	holders   int
	exclusive bool
	weight    int
	full      bool // a ticket did not fit: those behind it wait
}

// admit reports whether the next ticket, with the share s, holds the lock.
func (a *admission) admit(s backend.Share) bool {
	fits := a.holders == 0 || !a.exclusive && !s.Exclusive() && (s.Capacity == 0 || a.weight+s.Weight <= s.Capacity)
	a.full = a.full || !fits
	if a.full {
		return false
	}
	a.holders++
	a.exclusive, a.weight = s.Exclusive(), a.weight+s.Weight
	return true
}

// live yields the live tickets of ns, and removes the dead ones. It requires what lastAlive does.
func (d *directory) live(ns []uint64) iter.Seq2[contender, error] {
	return func(yield func(contender, error) bool) {
		for _, n := range ns {
			c, alive, err := d.probe(n)
			if !alive && err == nil {
				_ = d.remove(ticketName(n)) // else the next request tries
			} else if !yield(c, err) {
				return
			}
		}
	}
}

// holders returns the tickets that hold the lock, of its lowest tickets ns, and the admission
// after them.
func (d *directory) holders(ns []uint64) (hs []contender, a admission, err error) {
	for c, err := range d.live(ns) {
		if err != nil {
			return nil, a, err
		}
		if !a.admit(c.share()) {
			break
		}
		hs = append(hs, c)
	}
	return hs, a, nil
}

// freeSlots returns the lowest slots that no holder has.
func freeSlots(s backend.Share, holders []contender) []int {
	var taken []int
	for _, h := range holders {
		taken = append(taken, h.slots()...)
	}
	return s.FreeSlots(taken)
}

// permitsBehind returns the place of a request for permits behind the tickets ns, which are all
// tickets before it.
func (d *directory) permitsBehind(ns []uint64, s backend.Share) (place, error) {
	hs, a, err := d.holders(ns)
	if err != nil {
		return place{}, err
	}
	if a.full { // it is not the first waiter
		if before, err := d.lastAlive(ns); before != 0 || err != nil {
			return place{before: before}, err
		}
		hs, a = nil, admission{} // all have ended meanwhile
	}
	if !a.admit(s) {
		return place{before: anyTicket}, nil
	}
	return place{slots: freeSlots(s, hs)}, nil
}

// permitsBefore returns what a ticket for permits waits for, 0 if nothing. A waiter behind another
// one looks at that one alone until it was granted its permits, which changes its file.
func (d *directory) permitsBefore(t *ticket, before uint64, deep bool) (uint64, error) {
	if before != anyTicket && !deep {
		c, alive, err := d.probe(before)
		if err != nil || alive && c.slots() == nil {
			return before, err
		}
	}
	ns, err := d.numbers()
	if err != nil {
		return before, err
	}
	at, _ := slices.BinarySearch(ns, t.number)
	p, err := d.permitsBehind(ns[:at], t.share)
	return p.before, err
}

// lastExclusive returns the last live exclusive ticket up to n, 0 if there is none. It requires
// what lastAlive does. A reader names the exclusive ticket before it, so readers are skipped.
func (d *directory) lastExclusive(n uint64) (uint64, error) {
	for n != 0 {
		c, alive, err := d.probe(n)
		switch {
		case err != nil:
			return n, err
		case alive && c.share().Exclusive():
			return n, nil
		case alive:
			n = c.Behind
		case d.counter().granted == n:
			return 0, nil // no live ticket was below it
		default:
			ns, err := d.numbers()
			if err != nil {
				return n, err
			}
			at, found := slices.BinarySearch(ns, n)
			if found {
				at++
			}
			if n, err = d.lastAlive(ns[:at]); err != nil {
				return n, err
			}
		}
	}
	return 0, nil
}

// join returns the place of a shared request behind the last live ticket, 0 if there is none. It
// returns a CapacityError if the lock is used with another capacity.
func (g *guard) join(s backend.Share, c counter, last uint64) (place, error) {
	if last == 0 {
		return place{slots: s.FreeSlots(nil)}, nil
	}
	present, err := g.sharedTicket(c)
	if err != nil {
		return place{}, err
	}
	if p := present.share(); !p.Exclusive() && p.Capacity != s.Capacity {
		return place{}, backend.CapacityError(s, p)
	}
	if s.Capacity == 0 {
		before, err := g.dir.lastExclusive(last)
		return place{before: before}, err
	}
	// Behind a waiter the place does not depend on the holders, of which there may be many.
	if present.number != last || present.slots() == nil {
		return place{before: last}, nil
	}
	ns, err := g.dir.numbers()
	if err != nil {
		return place{}, err
	}
	return g.dir.permitsBehind(ns, s)
}

// sharedTicket returns the last live ticket that is shared, the zero value if there is none.
func (g *guard) sharedTicket(c counter) (contender, error) {
	if c.last == 0 {
		c.shared = math.MaxUint64 // the counter is new or damaged
	}
	if c.shared == 0 || c.shared < c.granted { // no live ticket is below the one that was granted
		return contender{}, nil
	}
	if t, alive, err := g.dir.probe(c.shared); err != nil || alive && !t.share().Exclusive() {
		return t, err
	}
	ns, err := g.dir.numbers()
	if err != nil {
		return contender{}, err
	}
	for _, n := range slices.Backward(ns) {
		if n < c.granted {
			break
		}
		if n >= c.shared {
			continue
		}
		if t, alive, err := g.dir.probe(n); err != nil || alive && !t.share().Exclusive() {
			return t, err
		}
	}
	return contender{}, nil
}
