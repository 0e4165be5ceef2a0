package placestest

import (
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// copied is a queue as the events of a view say it is.
type copied struct {
	mu    sync.Mutex
	all   []places.Place
	wrong []string
}

func (v *copied) changed(p places.Place, c places.Change) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.all, func(o places.Place) bool { return o.ID == p.ID })
	switch {
	case i >= 0 && p.Version <= v.all[i].Version:
		v.wrong = append(v.wrong, "a change of "+p.ID+" has no later version")
	case c == places.Ended && i >= 0:
		v.all = slices.Delete(v.all, i, i+1)
	case c == places.Updated && i >= 0:
		v.all[i] = p
	case c == places.Updated:
		v.all = append(v.all, p)
	}
}

// A view reports what is put, updated and ended, as a read shows it.
func (c *checker) view() {
	viewer, ok := c.q.(places.Viewer)
	if !ok {
		return // no service must be one
	}
	before := c.enter(backend.Share{})
	var v copied
	since, stop, err := viewer.View(c.Context(), c.key, v.changed)
	if err != nil {
		c.Fatalf("View: %v", err)
	}
	c.Cleanup(stop)
	v.mu.Lock()
	v.all = append([]places.Place{before}, v.all...)
	v.mu.Unlock()
	if since < before.Order {
		c.Errorf("the view reports places after %d, and the order of one before it is %d", since, before.Order)
	}
	a, b := c.enter(backend.Share{}), c.enter(backend.Share{Weight: 2, Capacity: 5})
	if a.Order <= since {
		c.Errorf("the order of a new place is %d, of a view from %d on", a.Order, since)
	}
	changed := []places.Place{before}
	changed[0].Share = backend.Reader
	if done, err := c.p.Update(c.Context(), changed); !done || err != nil {
		c.Fatalf("Update: %v, %v", done, err)
	}
	c.removed(removal(c.key, a))
	want := c.queue(0).Places
	if len(want) != 2 || want[1].ID != b.ID || want[0].Share != backend.Reader || want[0].Session == "" {
		c.Fatalf("want two places, got %+v", want)
	}
	same := func(x, y places.Place) bool {
		return x.ID == y.ID && x.Order == y.Order && x.Version == y.Version && x.Contender == y.Contender &&
			x.Session == y.Session
	}
	for range 1000 {
		v.mu.Lock()
		done, wrong := slices.EqualFunc(v.all, want, same), v.wrong
		v.mu.Unlock()
		if len(wrong) > 0 {
			c.Fatal(wrong)
		}
		if done {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.Fatalf("want the events to say %+v, they say %+v", want, v.all)
}
