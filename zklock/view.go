package zklock

import (
	"cmp"
	"slices"
	"sync"
)

// A view is what the waiters of a process know of the queue of one lock, in one session.
// Only the first of them asks the service, so the others cost it their nodes and nothing
// else. Readers, which may be granted together, all ask. Of those that wait for permits the first
// asks, and of the exclusive waiters: see lane.
//
// places was read once and then only lost elements. For a waiter that is in it, the elements
// in front of that include every place that is still in front: none enters there, and
// a name, which contains an owner id, is never used again.
type view struct {
	mu      sync.Mutex
	waiters []*waiter // of this process, in the order of the queue
	places  []child   // in the order of the queue
	read    int       // length of places when they were read

	permits readPermits
	several bool // see toRead
}

// enterView registers w in the view of its lock, which it begins if there is none. It
// closes the turn of a waiter that is the first of its lane.
func (s *session) enterView(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.views[w.a.dir]
	if v == nil {
		v = &view{}
		s.views[w.a.dir] = v
	}
	w.view, w.turn = v, make(chan struct{})
	v.mu.Lock()
	defer v.mu.Unlock()
	i, _ := slices.BinarySearchFunc(v.waiters, w.place, func(w *waiter, c child) int { return cmp.Compare(w.place.seq, c.seq) })
	v.waiters = slices.Insert(v.waiters, i, w)
	if first := v.firstOf(w.lane()); first == w || w.place.kind == readerNode {
		close(w.turn)
	}
}

// lane is what the waiters of a process have in common of which one asks.
type lane struct {
	kind     kind
	capacity int
}

func (w *waiter) lane() lane { return lane{w.place.kind, w.a.req.Share.Capacity} }

// firstOf returns the first waiter of a lane, nil if there is none. v.mu is held.
func (v *view) firstOf(l lane) *waiter {
	for _, w := range v.waiters {
		if w.lane() == l {
			return w
		}
	}
	return nil
}

// leaveView ends the wait of w, and closes the turn of the next waiter if w was the first.
// granted: the places in front of w are gone, if it is exclusive.
func (s *session) leaveView(w *waiter, granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := w.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if i, found := v.find(w.place); granted && found && w.place.kind == exclusiveNode {
		v.places = v.places[i:]
	}
	v.waiters = slices.DeleteFunc(v.waiters, func(x *waiter) bool { return x == w })
	if len(v.waiters) == 0 {
		delete(s.views, w.a.dir)
	} else if next := v.firstOf(w.lane()); next != nil && !isReady(next.turn) {
		close(next.turn)
	}
}

func (v *view) find(place child) (int, bool) {
	i, found := slices.BinarySearchFunc(v.places, place, func(c, p child) int { return cmp.Compare(c.seq, p.seq) })
	return i, found && v.places[i].node == place.node
}

// set replaces the places by those that were read now.
func (v *view) set(places []child) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.places, v.read = slices.Clone(places), len(places)
}

// front returns the places that may be in front of one, in order; for a reader those that stop
// it. It returns false if that is not known. far: it is cheaper to read the queue than these
// places.
func (v *view) front(place child) (front []child, far, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i, known := v.find(place)
	if known && place.kind == readerNode {
		for _, c := range v.places[:i] {
			if c.kind != readerNode {
				front = append(front, c)
			}
		}
		return front, len(front) > max(4, v.read/64), true
	}
	if far = i > max(4, v.read/64); known && !far {
		front = slices.Clone(v.places[:i])
	} else if known {
		front = slices.Clone(v.places[i-2 : i])
	}
	return front, far, known
}

// remove removes a place that is gone. It is mostly one of the first.
func (v *view) remove(place child) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i, found := v.find(place); found {
		copy(v.places[1:i+1], v.places[:i])
		v.places = v.places[1:]
	}
}

// setReader notes that a place is that of a reader since a downgrade.
func (v *view) setReader(place child) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i, found := v.find(place); found {
		v.places[i].kind = readerNode
	}
}

// holder returns the first place, as far as it is known.
func (v *view) holder() child {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.places) == 0 {
		return child{}
	}
	return v.places[0]
}

func nodeNames(places []child) []string {
	names := make([]string, len(places))
	for i, c := range places {
		names[i] = c.node
	}
	return names
}
