package placestest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// Read returns what was put, up to an order, and the last of it.
func (c *checker) read() {
	if q := c.queue(0); len(q.Places) != 0 || q.More {
		c.Errorf("a free key: got %+v", q)
	}
	var all []places.Place
	for range 5 {
		all = append(all, c.enter(backend.Share{}))
	}
	q := c.queue(0)
	for i, p := range q.Places {
		read := p.Contender == all[i].Contender && p.Token == all[i].Token
		if i > 0 && p.Token == 0 { // only its name was read
			read = p.Owner == all[i].Owner && p.Share == all[i].Share
		}
		if p.ID != all[i].ID || p.Order != all[i].Order || p.Version != all[i].Version || !read || p.Foreign {
			c.Errorf("place %d: want %+v, got %+v", i, all[i], p)
		}
	}
	if len(q.Places) != 5 || q.More {
		c.Errorf("want 5 places, got %+v", q)
	}
	if q := c.queue(2); q.More != (len(q.Places) < 5) || len(q.Places) < 2 || q.Places[len(q.Places)-2].ID != all[3].ID {
		c.Errorf("the last two: got %+v", q)
	}
	q, err := c.p.Read(c.Context(), c.key, all[2].Order, 0)
	if err != nil || len(q.Places) != 3 {
		c.Errorf("up to the third: got %+v, %v", q, err)
	}
}

// events are those of a watch.
type events struct {
	mu  sync.Mutex
	of  []places.Place
	all []places.Change
}

func (e *events) add(p places.Place, change places.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of, e.all = append(e.of, p), append(e.all, change)
}

func (c *checker) await(what string, e *events, p places.Place, change places.Change) {
	c.Helper()
	for range 1000 {
		e.mu.Lock()
		for i := range e.all {
			if e.of[i].ID == p.ID && e.all[i] == change && (change != places.Ended || e.of[i].Version > p.Version) {
				e.mu.Unlock()
				return
			}
		}
		e.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	c.Fatalf("%s: no event", what)
}

// Watches report the end and the update of a place, and the end of each place of a key.
func (c *checker) watch() {
	a, b := c.enter(backend.Share{}), c.enter(backend.Share{})
	var one, every events
	watch := func(p places.Place, e *events) {
		c.Helper()
		stop, _, err := c.q.Watch(c.Context(), c.key, p, e.add)
		if err != nil {
			c.Fatalf("Watch: %v", err)
		}
		c.Cleanup(stop)
	}
	watch(a, &one)
	watch(places.Place{}, &every)
	all := []places.Place{a}
	all[0].Share = backend.Reader
	if done, err := c.p.Update(c.Context(), all); !done || err != nil {
		c.Fatalf("Update: %v, %v", done, err)
	}
	c.await("an update", &one, a, places.Updated)
	watch(all[0], &one) // the first watch may have been interrupted by the update
	c.removed(removal(c.key, b))
	c.await("the end of another place", &every, b, places.Ended)
	c.removed(removal(c.key, a))
	c.await("the end of a place", &one, all[0], places.Ended)
	c.await("the end of a place", &every, all[0], places.Ended)
}

func (c *checker) check() {
	var all []places.Place
	for range 250 {
		all = append(all, *c.put(c.p, c.sp, c.request(backend.Reader), places.Follow).Place)
	}
	compare := func(want map[int]places.Change) {
		c.Helper()
		changes, err := c.q.Check(c.Context(), all)
		if err != nil || len(changes) != len(all) {
			c.Fatalf("Check: %d changes, %v", len(changes), err)
		}
		for i, got := range changes {
			if got != want[i] {
				c.Errorf("place %d: want %v, got %v", i, want[i], got)
			}
		}
	}
	compare(nil)
	c.removed(removal(c.key, all[7]), removal(c.key, all[201]))
	again := c.request(backend.Reader)
	again.Owner = all[7].Owner // a place of the same name is another one
	c.put(c.p, c.sp, again, places.Follow)
	compare(map[int]places.Change{7: places.Ended, 201: places.Ended})
}

// Update writes all places, or none.
func (c *checker) update() {
	share := backend.Share{Weight: 1, Capacity: 9}
	w, a, b := c.enter(backend.Share{}), c.enter(share), c.enter(share)
	a.Slots, b.Slots = []int{0}, []int{1}
	w.Share = backend.Reader
	stale := b
	stale.Version++
	for what, all := range map[string][]places.Place{"another version": {a, stale}, "and another": {stale}} {
		if done, err := c.q.Update(c.Context(), all); done || err != nil {
			c.Errorf("%s: want nothing done, got %v, %v", what, done, err)
		}
	}
	if q := c.queue(0); len(q.Places[1].Slots) != 0 {
		c.Errorf("after updates that were refused: %+v", q)
	}
	updated := func(all ...places.Place) places.Queue {
		c.Helper()
		if done, err := c.q.Update(c.Context(), all); !done || err != nil {
			c.Fatalf("want it done, got %v, %v", done, err)
		}
		q := c.queue(0)
		for i := range all {
			if all[i].Version != q.Places[i].Version {
				c.Errorf("the version of place %d after an update: got %d, it is %d", i, all[i].Version, q.Places[i].Version)
			}
		}
		return q
	}
	if p := updated(w).Places[0]; p.Share != backend.Reader || p.Order != w.Order || p.Version == w.Version || p.Metadata != w.Metadata {
		c.Errorf("after an update: %+v", p)
	}
	c.removed(removal(c.key, w))
	if q := updated(a, b); !slices.Equal(q.Places[0].Slots, a.Slots) || !slices.Equal(q.Places[1].Slots, b.Slots) {
		c.Errorf("slots after an update: %+v", q)
	}
	changes, err := c.q.Check(c.Context(), []places.Place{a})
	if err != nil || changes[0] != places.Updated {
		c.Errorf("Check of the old version: %v, %v", changes, err)
	}
	if done, err := c.q.Update(c.Context(), []places.Place{w}); done || err != nil {
		c.Errorf("of a place that has ended: %v, %v", done, err)
	}
}

// A removal with Late set removes what its attempt has, also if the attempt does not know its place.
func (c *checker) late() {
	other := c.enter(backend.Reader)
	for _, m := range []places.Mode{places.Try, places.Enter, places.Follow} {
		req := c.request(backend.Reader)
		c.put(c.p, c.sp, req, m)
		c.removed(places.Removal{Key: c.key, Session: c.sp, Asked: req, Number: c.number(req.Owner), Late: true})
		if q := c.queue(0); len(q.Places) != 1 || q.Places[0].ID != other.ID {
			c.Errorf("mode %d: want the other place alone, got %+v", m, q)
		}
	}
	c.enter(backend.Reader) // the session goes on
}

func (c *checker) remove() {
	a, b := c.enter(backend.Reader), c.enter(backend.Reader)
	if got := c.removed(removal(c.key, a), removal(c.key, b), removal(c.key, a)); got[0] == got[2] || !got[1] {
		c.Errorf("want both removed once, got %v", got)
	}
	if got := c.removed(removal(c.key, a)); got[0] {
		c.Errorf("again: %v", got)
	}
	d := c.enter(backend.Reader) // another process may know the owner alone
	got := c.q.Remove(c.Context(), []places.Removal{{Key: c.key, Asked: backend.Request{Key: c.key, Owner: d.Owner}}})
	if got[0].Err != nil || len(c.queue(0).Places) != 0 {
		c.Errorf("by the owner: %+v, left %+v", got, c.queue(0))
	}
}

// A break removes the place that the caller knows, and no other with its name.
func (c *checker) broken() {
	var all []places.Removal
	for range 150 {
		r := removal(c.key, *c.put(c.p, c.sp, c.request(backend.Reader), places.Follow).Place)
		r.Break = true
		all = append(all, r)
	}
	req := c.request(backend.Reader)
	req.Owner = all[3].Owner
	c.removed(removal(c.key, all[3].Place))
	c.put(c.p, c.sp, req, places.Follow)
	for i, r := range c.q.Remove(c.Context(), all) {
		if r.Err != nil || r.Existed != (i != 3) {
			c.Errorf("%d: %+v", i, r)
		}
	}
	if q := c.queue(0); len(q.Places) != 1 || q.Places[0].Owner != req.Owner {
		c.Errorf("want the place that was put again, got %+v", q)
	}
}

// A session that is closed ends its places, and refuses requests.
func (c *checker) session() {
	c.enter(backend.Reader)
	kept := c.put(c.q, c.sq, c.request(backend.Reader), places.Enter)
	begun := time.Now()
	if err := c.sp.Renew(c.Context(), 0); err != nil {
		c.Errorf("Renew: %v", err)
	}
	if sent, ttl := c.sp.Trust(); sent.Before(begun.Add(-checkTTL/8)) || ttl < checkTTL {
		c.Errorf("after a renewal at %v: trust from %v for %v", begun, sent, ttl)
	}
	if err := c.sp.Close(c.Context()); err != nil {
		c.Fatalf("Close: %v", err)
	}
	<-c.sp.Done()
	if !errors.Is(c.sp.Err(), backend.ErrLost) {
		c.Errorf("after Close: %v", c.sp.Err())
	}
	if q := c.queue(0); len(q.Places) != 1 || q.Places[0].ID != kept.Place.ID {
		c.Errorf("want the place of the other session, got %+v", q)
	}
	_, err := c.p.Put(c.Context(), places.Put{Request: c.request(backend.Reader), Session: c.sp, Mode: places.Enter, Number: len(c.owners)})
	if !errors.Is(err, places.ErrEnded) {
		c.Errorf("Put: want ErrEnded, got %v", err)
	}
}

// Keys of any bytes are different.
func (c *checker) keys() {
	base := c.key
	for i, key := range []string{"", "/", "//", "%", "%2F", " ", "\x00", "\xff", "a", "A", "\u00e9", ".", ".."} {
		c.key = base + key
		c.enter(backend.Share{})
		if q := c.queue(0); len(q.Places) != 1 {
			c.Errorf("key %d, %q: want one place, got %+v", i, key, q)
		}
	}
}
