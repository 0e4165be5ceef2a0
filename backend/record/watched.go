package record

import (
	"maps"
	"sync"
	"time"
)

// watched remembers since when this client has seen the records of others unchanged: those of the
// keys for which it waits, and those of the others that it has read last. Of these it remembers at
// least mostSights and at most twice as many: the sights of two generations. A sight moves to the present
// one when it is used; an old one that was not used is forgotten, which costs the client that comes
// back another TTL.
type watched struct {
	mu           sync.Mutex // guards the fields below
	present, old map[string]sight
	waiting      map[string]*line    // of keys whose sights stay
	places       map[string]struct{} // keys in whose records this process may have a place
}

// line is what the process has while it waits for a key.
type line struct {
	turn     time.Duration // for its place
	released chan struct{} // has an element after a release by this process
}

// mostSights is how many sights the present generation has, beside those of the keys for which
// the client waits. A sight has about 300 bytes.
const mostSights = 1 << 14

type sight struct {
	written
	since time.Time
	timed bool // since is when the record was written, by a Timer
}

// written is one write of a record. Versions of a service that has lost its data may repeat, but
// no owner does.
type written struct {
	version, owner string
	writes         uint64
}

// look records that the record of a key was read, and returns for how long it has been unchanged.
func (w *watched) look(key string, seen written) time.Duration {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	s, present := w.findLocked(key)
	if s.written != seen {
		s = sight{written: seen, since: now}
	}
	if !present && len(w.present) >= mostSights+len(w.waiting) {
		w.ageLocked()
	}
	if w.present == nil {
		w.present = map[string]sight{}
	}
	w.present[key] = s
	delete(w.old, key)
	return now.Sub(s.since)
}

// timed reports whether began was called for the record of a key.
func (w *watched) timed(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, _ := w.findLocked(key)
	return s.timed
}

// began records that the record of a key, which was just read, has been unchanged for elapsed by a Timer; zero: not known.
func (w *watched) began(key string, elapsed time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s, ok := w.present[key]; ok && elapsed > 0 {
		s.since, s.timed = time.Now().Add(-elapsed), true
		w.present[key] = s
	}
}

// findLocked returns the sight of a key, the zero sight if there is none, and whether it is of the
// present generation.
func (w *watched) findLocked(key string) (s sight, present bool) {
	if s, present = w.present[key]; !present {
		s = w.old[key]
	}
	return s, present
}

// ageLocked makes the present generation the old one.
func (w *watched) ageLocked() {
	kept := w.old
	maps.DeleteFunc(kept, func(key string, _ sight) bool { _, stays := w.waiting[key]; return !stays })
	w.present, w.old = kept, w.present
}

// wait keeps the sight of a key until forgo is called.
func (w *watched) wait(key string, turn time.Duration) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[string]*line{}
	}
	w.waiting[key] = &line{turn: turn, released: make(chan struct{}, 1)}
	return w.waiting[key]
}

func (w *watched) forgo(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, key)
}

// line returns that of a key, or nil if this process does not wait for it.
func (w *watched) line(key string) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting[key]
}

// place records whether the record of a key may have a place of this process.
func (w *watched) place(key string, may bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !may:
		delete(w.places, key)
	case w.places == nil:
		w.places = map[string]struct{}{}
		fallthrough
	default:
		w.places[key] = struct{}{}
	}
}

func (w *watched) placed(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, may := w.places[key]
	return may
}

func (w *watched) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.present, key)
	delete(w.old, key)
}
