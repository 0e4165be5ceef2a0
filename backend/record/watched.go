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
	waiting      map[string]struct{} // keys whose sights stay
}

// mostSights is how many sights the present generation has, beside those of the keys for which
// the client waits. A sight has about 300 bytes.
const mostSights = 1 << 14

type sight struct {
	written
	ttl   time.Duration
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
func (w *watched) look(key string, seen written, ttl time.Duration) time.Duration {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	s, present := w.findLocked(key)
	if s.written != seen {
		s = sight{written: seen, ttl: ttl, since: now}
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
func (w *watched) wait(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[string]struct{}{}
	}
	w.waiting[key] = struct{}{}
}

func (w *watched) forgo(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, key)
}

// left returns for how long a record must still be unchanged until it has been for its TTL, and this client may take
// it; zero if it may, or has not seen it.
func (w *watched) left(key string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, _ := w.findLocked(key)
	return max(0, s.ttl-time.Since(s.since))
}

func (w *watched) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.present, key)
	delete(w.old, key)
}
