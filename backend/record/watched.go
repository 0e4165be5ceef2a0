package record

import (
	"sync"
	"time"
)

// watched remembers since when this client has seen the records of others unchanged.
type watched struct {
	mu    sync.Mutex // guards the fields below
	byKey map[string]sight
	limit int // at which old sights are removed
}

type sight struct {
	written
	ttl         time.Duration
	since, last time.Time
}

// written is one write of a record. Versions of a service that has lost its data may repeat, but
// no owner does.
type written struct {
	version, owner string
	writes         int
}

const (
	leastSights = 1024
	// oldSight is after how long a sight that was not used again may be removed. That costs
	// a client that comes back later another TTL.
	oldSight = 25 * time.Hour
)

// look records that the record of a key was received, and returns for how long it has been
// unchanged.
func (w *watched) look(key string, seen written, ttl time.Duration) time.Duration {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byKey[key]
	if s.written != seen {
		s = sight{written: seen, ttl: ttl, since: now}
	}
	s.last = now
	if w.byKey == nil {
		w.byKey = map[string]sight{}
	}
	if len(w.byKey) >= max(w.limit, leastSights) {
		for k, old := range w.byKey {
			if now.Sub(old.last) > oldSight {
				delete(w.byKey, k)
			}
		}
		w.limit = 2 * len(w.byKey)
	}
	w.byKey[key] = s
	return now.Sub(s.since)
}

// left returns for how long a record must still be unchanged until it has been for its TTL, and this client may take
// it; zero if it may, or has not seen it.
func (w *watched) left(key string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.byKey[key].ttl-time.Since(w.byKey[key].since))
}

func (w *watched) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey, key)
}
