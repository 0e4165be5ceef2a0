package filelock

import (
	"iter"
	"math"
	"slices"

	"github.com/interlock-go/lock/backend"
)

// The holders of a lock are the first of its live tickets, as many as backend.Admitted says. Numbers rise and the
// dead stay dead, so the tickets before a ticket only become fewer, and one that holds the lock holds it until its
// end, whatever was read before or after. So a decision needs no guard, and no file says who holds the lock.

// place is where a request is in the queue.
type place struct {
	before uint64 // the ticket that it waits for, or anyTicket; 0 if it is granted
	slots  []int  // of permits that are granted
	alone  bool   // no ticket is alive
}

const (
	anyTicket = math.MaxUint64 // what the first waiter for permits waits for: the end of any ticket
	newTicket = math.MaxUint64 // the number of a request that has none: all tickets are before it
)

// place returns the place of a request with that number. from is the last live ticket before it when that was last
// looked for. A deep look does not rely on the next waiter before it being awake.
func (d *directory) place(s backend.Share, number, from uint64, deep bool) (place, error) {
	if s.Capacity == 0 {
		before, err := d.blocker(s, number, from)
		return place{before: before}, err
	}
	if from != anyTicket && !deep {
		// Behind a waiter the place does not depend on the holders, of which there may be many.
		if c, alive, err := d.probe(from); err != nil || alive && c.Slots == nil {
			return place{before: from}, err
		}
	}
	ns, err := d.numbers(number)
	if err != nil {
		return place{}, err
	}
	return d.permits(s, number, ns)
}

// blocker returns the last live ticket up to n beside which a share without permits cannot hold the lock, 0 if there
// is none. All tickets between n and the number were dead when n was found. A reader's ticket names the one before it
// that is no reader's, so readers are skipped.
func (d *directory) blocker(s backend.Share, number, n uint64) (uint64, error) {
	for n != 0 {
		c, alive, err := d.probe(n)
		switch {
		case err != nil || alive && (s.Exclusive() || c.Share != backend.Reader):
			return n, err
		case alive:
			n = c.Behind
		case d.counter().granted == n: // no live ticket was below it
			return 0, nil
		default:
			ns, err := d.numbers(min(n+1, number))
			if err != nil {
				return n, err
			}
			if n, err = d.lastAlive(ns); err != nil {
				return n, err
			}
		}
	}
	return 0, nil
}

// permits returns the place of a request for permits. ns are the tickets before it, and if the caller has the guard
// also its own and later ones: those may have been granted, and have slots, while its process was stopped.
func (d *directory) permits(s backend.Share, number uint64, ns []uint64) (place, error) {
	var a backend.Admission
	var taken []int
	for c, err := range d.live(ns) {
		if err != nil {
			return place{}, err
		}
		if a.Next(c.Share) {
			if c.number != number {
				taken = append(taken, c.Slots...)
			}
			continue
		}
		if c.number > number {
			break
		}
		if c.number == number {
			return place{before: anyTicket}, nil
		}
		at, _ := slices.BinarySearch(ns, number) // the request is not the first waiter
		before, err := d.lastAlive(ns[:at])
		if before == 0 && err == nil { // all have ended meanwhile
			return d.permits(s, number, ns)
		}
		return place{before: before}, err
	}
	if _, listed := slices.BinarySearch(ns, number); !listed && !a.Next(s) {
		return place{before: anyTicket}, nil
	}
	return place{slots: s.FreeSlots(taken)}, nil
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

// lastAlive returns the last live ticket, 0 if there is none, and removes the dead ones behind it. The caller has the
// guard, or a live ticket above all of ns: so none of them is being made, and no number of ns can be drawn again.
func (d *directory) lastAlive(ns []uint64) (uint64, error) {
	for _, n := range slices.Backward(ns) {
		if ok, err := d.alive(n); ok || err != nil {
			return n, err
		}
		_ = d.remove(ticketName(n)) // else the next request tries
	}
	return 0, nil
}
