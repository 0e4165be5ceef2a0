package placestest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

const checkTTL = time.Minute

// Harness is how a test reaches a service.
type Harness struct {
	// Open returns the Service of a process, always of the same service, and closes it at the end of the test.
	Open func(t *testing.T) places.Service
	// Virtual: the service lives in virtual time.
	Virtual bool
}

// Test checks what every Service must keep.
func Test(t *testing.T, h Harness) {
	for name, check := range map[string]func(*checker){
		"order": (*checker).order, "try": (*checker).try, "idempotent": (*checker).idempotent, "slots": (*checker).slots,
		"read": (*checker).read, "watch": (*checker).watch, "check": (*checker).check, "update": (*checker).update,
		"late": (*checker).late, "remove": (*checker).remove, "break": (*checker).broken, "session": (*checker).session,
		"keys": (*checker).keys, "view": (*checker).view,
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T) {
				c := &checker{T: t, p: h.Open(t), q: h.Open(t), key: "check-" + newOwner()}
				c.sp, c.sq = c.open(c.p), c.open(c.q)
				check(c)
			}
			if h.Virtual {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

// checker is a check with two processes and their sessions.
type checker struct {
	*testing.T
	p, q   places.Service
	sp, sq places.Session
	key    string
	owners []string // of the attempts, by their numbers
}

func newOwner() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func (c *checker) open(s places.Service) places.Session {
	c.Helper()
	session, err := s.Open(c.Context(), checkTTL)
	if err != nil {
		c.Fatalf("Open: %v", err)
	}
	c.Cleanup(func() { _ = session.Close(context.Background()) })
	return session
}

func (c *checker) request(share backend.Share) backend.Request {
	return backend.Request{Key: c.key, Owner: newOwner(), TTL: checkTTL, Metadata: "m\u00e9", Share: share}
}

func (c *checker) put(s places.Service, session places.Session, req backend.Request, m places.Mode) places.Answer {
	c.Helper()
	a, err := s.Put(c.Context(), places.Put{Request: req, Session: session, Mode: m, Number: c.number(req.Owner)})
	if err != nil {
		c.Fatalf("Put: %v", err)
	}
	return a
}

func (c *checker) number(owner string) int {
	i := slices.Index(c.owners, owner)
	if i < 0 {
		i = len(c.owners)
		c.owners = append(c.owners, owner)
	}
	return i
}

// enter puts a place that holds, or waits.
func (c *checker) enter(share backend.Share) places.Place {
	c.Helper()
	a := c.put(c.p, c.sp, c.request(share), places.Enter)
	if a.Place == nil {
		c.Fatal("Enter: want a place, got none")
	}
	return *a.Place
}

func (c *checker) queue(last int) places.Queue {
	c.Helper()
	q, err := c.q.Read(c.Context(), c.key, places.All, last)
	if err != nil {
		c.Fatalf("Read: %v", err)
	}
	return q
}

func removal(key string, p places.Place) places.Removal {
	return places.Removal{Place: p, Key: key, Asked: backend.Request{Key: key, Owner: p.Owner, Share: p.Share}}
}

func (c *checker) removed(all ...places.Removal) (existed []bool) {
	c.Helper()
	for _, r := range c.p.Remove(c.Context(), all) {
		if r.Err != nil {
			c.Fatalf("Remove: %v", r.Err)
		}
		existed = append(existed, r.Existed)
	}
	return existed
}

// Places are in the order in which they were put, and the answer to Enter has those before.
func (c *checker) order() {
	first := c.put(c.p, c.sp, c.request(backend.Share{}), places.Enter)
	if !first.Holds && first.Queue.Holders() != 1 {
		c.Errorf("a place of a free key: want it to hold, got %+v", first)
	}
	last := *first.Place
	for _, share := range []backend.Share{{}, backend.Reader, {Weight: 2, Capacity: 3}, {}} {
		a := c.put(c.q, c.sq, c.request(share), places.Enter)
		if a.Holds || a.Place.Order <= last.Order || a.Place.Token <= last.Token {
			c.Errorf("%v after %+v: got %+v", share, last, a)
		}
		n := len(a.Queue.Places)
		if n < 2 || a.Queue.Places[n-1].ID != a.Place.ID || a.Queue.Places[n-2].ID != last.ID {
			c.Errorf("%v: want the place before, and its own, got %+v", share, a.Queue)
		}
		last = *a.Place
	}
	if a := c.put(c.p, c.sp, c.request(backend.Share{}), places.Follow); a.Holds || a.Place.Order <= last.Order {
		c.Errorf("Follow: got %+v after %+v", a, last)
	}
}

// A Try puts a place only if that holds the key.
func (c *checker) try() {
	reader, permits := backend.Reader, backend.Share{Weight: 2, Capacity: 3}
	for _, row := range []struct {
		held, asked backend.Share
		holds       bool
	}{
		{backend.Share{}, backend.Share{}, false}, {backend.Share{}, reader, false}, {backend.Share{}, permits, false},
		{reader, reader, true}, {reader, backend.Share{}, false}, {reader, permits, false},
		{permits, backend.Share{Weight: 1, Capacity: 3}, true}, {permits, permits, false}, {permits, reader, false},
		{permits, backend.Share{Weight: 2, Capacity: 4}, true}, {permits, backend.Share{Weight: 1, Capacity: 2}, false},
	} {
		h := c.put(c.p, c.sp, c.request(row.held), places.Try)
		if h.Place == nil || !h.Holds || len(h.Place.Slots) != weight(row.held) {
			c.Fatalf("%v of a free key: got %+v", row.held, h)
		}
		a := c.put(c.q, c.sq, c.request(row.asked), places.Try)
		if a.Holds != row.holds || (a.Place != nil) != row.holds {
			c.Errorf("%v beside %v: want it to hold: %v, got %+v", row.asked, row.held, row.holds, a)
		}
		if !row.holds && (len(a.Queue.Places) == 0 || a.Queue.Places[0].Owner != h.Place.Owner) {
			c.Errorf("%v beside %v: want the holder, got %+v", row.asked, row.held, a.Queue)
		}
		if a.Place != nil && row.held.Capacity > 0 && slices.Contains(h.Place.Slots, a.Place.Slots[0]) {
			c.Errorf("slots %v beside %v", a.Place.Slots, h.Place.Slots)
		}
		w := c.put(c.q, c.sq, c.request(backend.Share{}), places.Follow)
		if b := c.put(c.p, c.sp, c.request(row.asked), places.Try); b.Place != nil {
			c.Errorf("%v behind a waiter: want it refused, got %+v", row.asked, b)
		}
		for _, p := range c.queue(0).Places {
			c.removed(removal(c.key, p))
		}
		_ = w
	}
}

func weight(s backend.Share) int {
	if s.Capacity == 0 {
		return 0
	}
	return s.Weight
}

// A request that is sent again finds the place.
func (c *checker) idempotent() {
	for _, m := range []places.Mode{places.Try, places.Enter, places.Follow} {
		req := c.request(backend.Share{})
		first := c.put(c.p, c.sp, req, m)
		again := c.put(c.p, c.sp, req, m)
		if again.Place == nil || again.Place.Order != first.Place.Order || len(c.queue(0).Places) != 1 {
			c.Errorf("mode %d, sent twice: want one place, got %+v and %+v", m, first.Place, again.Place)
		}
		c.removed(removal(c.key, *first.Place))
	}
}

// A Try puts the slots of permits, also those of holders that did not.
func (c *checker) slots() {
	w := c.enter(backend.Share{})
	first := c.put(c.q, c.sq, c.request(backend.Share{Weight: 2, Capacity: 5}), places.Follow)
	c.removed(removal(c.key, w))
	a := c.put(c.p, c.sp, c.request(backend.Share{Weight: 1, Capacity: 5}), places.Try)
	if !a.Holds || !slices.Equal(a.Place.Slots, []int{2}) {
		c.Errorf("want the slot behind those of a holder that has not recorded them, got %+v", a)
	}
	q := c.queue(0)
	if i := q.Index(first.Place.ID); i < 0 || !slices.Equal(q.Places[i].Slots, []int{0, 1}) {
		c.Errorf("want slots 0 and 1 of the first, got %+v", q.Places)
	}
}
