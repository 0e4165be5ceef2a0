package redlock

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	maxYield       = 250 * time.Millisecond
	maxContentions = 1 << 12 // that are remembered without a user
)

// window returns in what time the waiters of that many processes ask for a key that was released, each at random: they
// would split the votes if they asked together.
func window(processes int) time.Duration {
	return time.Duration(min(max(processes, 1), 100)) * time.Millisecond
}

// contentions are the keys for which this process waits, or that it has released while others waited.
type contentions struct {
	mu  sync.Mutex
	all map[string]*contention
}

type contention struct {
	users int
	stop  []func()
	timer *time.Timer

	holder    string              // whose release the waiters wait for, "" if they ask soon
	announced int                 // nodes that have announced it
	requests  int                 // attempts that ask at present
	ended     map[string]struct{} // owners of whom a node has announced the end of a grant meanwhile

	releases int       // of this process in a row, while others waited
	last     string    // whose release that was
	yields   time.Time // until when it lets them ask first
}

// get returns the contention of a key. k.mu is held.
func (k *contentions) get(key string) *contention {
	c := k.all[key]
	if c == nil {
		if len(k.all) >= maxContentions {
			maps.DeleteFunc(k.all, func(_ string, c *contention) bool { return c.users == 0 })
		}
		c = &contention{ended: map[string]struct{}{}}
		k.all[key] = c
	}
	return c
}

// Use implements queue.Pusher.
func (s *service) Use(key string) (stop func()) {
	k := &s.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.get(key)
	if c.users++; c.users == 1 {
		for _, n := range s.nodes {
			c.stop = append(c.stop, n.Use(key))
		}
	}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if c.users--; c.users > 0 {
			return
		}
		for _, f := range c.stop {
			f()
		}
		if c.timer != nil {
			c.timer.Stop()
		}
		if c.stop = nil; c.releases == 0 {
			delete(k.all, key)
		}
	}
}

// Listening implements queue.Pusher.
func (s *service) Listening(key string) bool {
	n := 0
	for _, node := range s.nodes {
		if node.Listening(key) {
			n++
		}
	}
	return n >= s.need
}

// Listen implements queue.Pusher. It returns when a quorum has confirmed the subscription: the quorum that a release
// reaches has a node of it.
func (s *service) Listen(ctx context.Context, key string) error {
	all, end := each(ctx, s, noTTL, func(ctx context.Context, i int) (any, error) {
		defer s.nodes[i].Use(key)()
		return nil, s.nodes[i].Listen(ctx, key)
	}, aQuorum[any](s))
	n := answered(all)
	switch {
	case n >= s.need:
		return nil
	case end != nil:
		return fmt.Errorf("%w: %w", end, failed(s, "confirmed the subscription", n, all))
	}
	return failed(s, "confirmed the subscription", n, all)
}

// Doubt implements queue.Pusher: there are no grants by events.
func (*service) Doubt(string) {}

// announced handles the announcement of a node that a grant of an owner has ended there. The waiters ask after the first
// one of the holder, and again when a quorum has announced it: after the first others may still hold. Attempts that have
// failed announce that too. If that made all others ask at once, these would split the votes again.
func (s *service) announced(key, owner string, left time.Duration, processes int) {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	c := s.keys.all[key]
	if c == nil || c.users == 0 {
		return
	}
	if owner != c.last { // another process has had the key
		c.releases, c.yields = 0, time.Time{}
	}
	if c.requests > 0 {
		c.ended[owner] = struct{}{}
	}
	if owner != c.holder {
		return
	}
	if c.announced++; c.announced != 1 && c.announced != s.need {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(left+rand.N(window(processes)), func() { s.events.Interrupted(key) })
}

// asks records that an attempt begins to ask for a key. It returns nil if no attempt waits for that.
func (k *contentions) asks(key string) *contention {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.all[key]
	if c != nil {
		c.requests++
	}
	return c
}

// asked records that an attempt has asked, and the holder that the waiters wait for, unless keep is set. It reports whether
// the end of a grant of the holder was announced meanwhile: it may be the release.
func (k *contentions) asked(c *contention, holder string, keep bool) (ends bool) {
	if c == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !keep {
		c.holder, c.announced = holder, 0
	}
	_, ends = c.ended[holder]
	if c.requests--; c.requests == 0 {
		clear(c.ended)
	}
	return ends
}

// released records that an attempt of this process has released a key for which so many other processes wait. It asks for
// the key again only when these had the time to, and after twice that time if it was the first nonetheless.
func (k *contentions) released(key, owner string, others int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch c := k.all[key]; {
	case others > 0:
		c = k.get(key)
		c.yields = time.Now().Add(min(2*window(others)<<min(c.releases, 8), maxYield))
		c.releases, c.last = c.releases+1, owner
	case c != nil:
		c.releases, c.yields = 0, time.Time{}
	}
}

// yields returns for how long the attempts of this process let others ask first.
func (k *contentions) yields(key string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.all[key]; c != nil && c.users > 0 {
		return time.Until(c.yields)
	}
	return 0
}

// overtaken records that another process has got a key.
func (k *contentions) overtaken(key string) { k.released(key, "", 0) }
