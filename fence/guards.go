package fence

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFull is matched by the error for a new key when Guards may forget none of those
// it has.
var ErrFull = errors.New("too many keys")

// What Guards does where its fields are zero.
const (
	DefaultMax  = 100_000
	DefaultKeep = 24 * time.Hour
)

// Guards is a Guard for each of many resources, by key, such as a lock's name. The zero
// value is ready. It is safe for concurrent use and must not be copied after first
// use; its fields are set before that.
//
// Memory is bounded, and never at the price of a token: at most Max keys are
// remembered, a few hundred bytes each. A key can be forgotten only when it has not
// been used for Keep, and is only when its place is needed; a holder that was stopped
// for longer than Keep is then no longer known to be stale. If no key may be forgotten
// a new one is refused with ErrFull.
type Guards struct {
	Max  int           // DefaultMax if zero or less
	Keep time.Duration // DefaultKeep if zero; less than zero: for ever

	mu   sync.Mutex
	keys map[string]*list.Element
	used list.List // of *keyed, the one that was used last in front
}

type keyed struct {
	guard Guard
	key   string
	users int // under way
	last  time.Time
}

// Do is Guard.Do for the resource of a key. Those of other keys do not wait for f.
func (g *Guards) Do(key string, token uint64, f func() error) error {
	k, err := g.take(key)
	if err != nil {
		return err
	}
	defer g.give(k)
	k.guard.mu.Lock()
	defer k.guard.mu.Unlock()
	if err := k.guard.see(key, token); err != nil {
		return err
	}
	return f()
}

// Check is Guard.Check for the resource of a key.
func (g *Guards) Check(key string, token uint64) error {
	return g.Do(key, token, func() error { return nil })
}

// Greatest returns the greatest token seen for a key, zero if none is known.
func (g *Guards) Greatest(key string) uint64 {
	g.mu.Lock()
	e := g.keys[key]
	g.mu.Unlock()
	if e == nil {
		return 0
	}
	return e.Value.(*keyed).guard.Greatest()
}

// Len returns how many keys are remembered.
func (g *Guards) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.keys)
}

// take finds or makes the guard of a key, and keeps it from being forgotten.
func (g *Guards) take(key string) (*keyed, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.keys[key]
	if e == nil {
		if !g.roomLocked() {
			return nil, fmt.Errorf("fence: %w for %q: %d are remembered, and none was unused for %v", ErrFull, key, len(g.keys), g.keep())
		}
		if g.keys == nil {
			g.keys = map[string]*list.Element{}
		}
		e = g.used.PushFront(&keyed{key: key})
		g.keys[key] = e
	}
	k := e.Value.(*keyed)
	k.users++ // and it moves to the front in give
	return k, nil
}

func (g *Guards) give(k *keyed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k.users--
	k.last = time.Now()
	g.used.MoveToFront(g.keys[k.key])
}

// roomLocked makes room for one more key, if it may.
func (g *Guards) roomLocked() bool {
	most := g.Max
	if most <= 0 {
		most = DefaultMax
	}
	if len(g.keys) < most {
		return true
	}
	oldest := g.used.Back()
	for ; oldest != nil && oldest.Value.(*keyed).users > 0; oldest = oldest.Prev() {
	}
	if oldest == nil || g.keep() < 0 {
		return false
	}
	k := oldest.Value.(*keyed)
	if time.Since(k.last) < g.keep() {
		return false
	}
	delete(g.keys, k.key)
	g.used.Remove(oldest)
	return true
}

func (g *Guards) keep() time.Duration {
	if g.Keep == 0 {
		return DefaultKeep
	}
	return g.Keep
}
