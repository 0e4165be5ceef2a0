package conformance

import (
	"time"

	"github.com/interlock-go/lock"
)

// fixedLeaseInFull takes a fixed lease beside another one of the same client, which is a while old and may share a
// session with it.
func fixedLeaseInFull(t *T) {
	ttl := t.clampTTL(4 * time.Second)
	if ttl > time.Minute {
		t.notRun("the least TTL is %v", ttl)
	}
	s := t.steady(ttl)
	c := s.c
	// Three quarters: the margin of a driver is less than that.
	full := func(what string, asked time.Time, l *lock.Lease) {
		answered := time.Now()
		if answered.Sub(asked) > ttl/10 {
			t.again("%s took %v", what, answered.Sub(asked))
		}
		if trusted := l.Expires().Sub(asked); trusted < ttl*3/4 {
			t.errorf("%s of %v on a client that was used before: want it trusted for that less a margin, got %v",
				what, ttl, trusted.Round(time.Millisecond))
		}
	}
	for range 2 {
		other := t.mustLock(c.Mutex(t.key("other"), lock.WithTTL(ttl), lock.WithoutRenewal()), "a free key")
		time.Sleep(ttl * 3 / 10)
		asked := time.Now()
		l := t.mustLock(c.Mutex(t.key("fixed"), lock.WithTTL(ttl), lock.WithoutRenewal()), "a free key")
		full("a lease without renewal", asked, l)
		time.Sleep(ttl * 3 / 10)
		asked = time.Now()
		s.kept(l.Extend(t.ctx, ttl), "Extend of a lease that is held")
		full("Extend", asked, l)
		s.unlock(l, "the holder")
		_ = other.Unlock(t.ctx) // it may be over
	}
}
