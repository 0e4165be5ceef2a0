package fence

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFull is matched by the error for a new key when Guards may not forget any key.
var ErrFull = errors.New("too many keys")

// Defaults of Guards.
const (
	DefaultMax  = 100_000
	DefaultKeep = 24 * time.Hour
)

// Guards is a Guard for each key, such as the name of a lock. The zero value is ready;
// set the fields before first use. It is safe for concurrent use and must not be copied
// after first use.
//
// Guards remembers at most Max keys, a few hundred bytes each. If a new key needs the
// place, Guards forgets the key that was unused for longest, but only after it was
// unused for Keep: a holder that was stopped for longer is not refused afterwards. If no
// key may be forgotten, the new key is refused with ErrFull.
type Guards struct {
	Max  int           // DefaultMax if zero or negative
	Keep time.Duration // DefaultKeep if zero; negative: keys are never forgotten

	mu   sync.Mutex
	keys map[string]*list.Element
	used list.List // of *keyGuard, the last used in front
}

type keyGuard struct {
	Guard
	key      string
	active   int // calls of Do
	lastUsed time.Time
}

// Do is Guard.Do for one key. Calls for other keys do not wait for f.
func (g *Guards) Do(key string, token uint64, f func() error) error {
	k, err := g.begin(key)
	if err != nil {
		return err
	}
	defer g.end(k)
	return k.do(key, token, f)
}

// Check is Guard.Check for one key.
func (g *Guards) Check(key string, token uint64) error { return g.Do(key, token, noop) }

// Greatest returns the greatest token seen for key, or 0.
func (g *Guards) Greatest(key string) uint64 {
	g.mu.Lock()
	e := g.keys[key]
	g.mu.Unlock()
	if e == nil {
		return 0
	}
	return e.Value.(*keyGuard).Greatest()
}

// Len returns how many keys are remembered.
func (g *Guards) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.keys)
}

// begin returns the guard of key, which is not forgotten until end.
func (g *Guards) begin(key string) (*keyGuard, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys == nil {
		g.keys = map[string]*list.Element{}
	}
	e := g.keys[key]
	if e == nil {
		if err := g.makeRoomLocked(key); err != nil {
			return nil, err
		}
		e = g.used.PushFront(&keyGuard{key: key})
		g.keys[key] = e
	}
	k := e.Value.(*keyGuard)
	k.active++
	return k, nil
}

func (g *Guards) end(k *keyGuard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k.active--
	k.lastUsed = time.Now()
	g.used.MoveToFront(g.keys[k.key])
}

// makeRoomLocked forgets a key if there is no place for a new one.
func (g *Guards) makeRoomLocked(key string) error {
	limit, keep := g.Max, g.Keep
	if limit <= 0 {
		limit = DefaultMax
	}
	if keep == 0 {
		keep = DefaultKeep
	}
	if len(g.keys) < limit {
		return nil
	}
	for e := g.used.Back(); e != nil && keep >= 0; e = e.Prev() {
		k := e.Value.(*keyGuard)
		if k.active > 0 {
			continue
		}
		if time.Since(k.lastUsed) < keep {
			break
		}
		delete(g.keys, k.key)
		g.used.Remove(e)
		return nil
	}
	return fmt.Errorf("fence: %w for %q: %d are remembered, and none was unused for %v", ErrFull, key, len(g.keys), keep)
}
