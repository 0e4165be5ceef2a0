package conformance

import (
	"errors"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// steady judges leases that outlast their TTL because they are renewed. Where one is
// lost while the service or this machine stood still for a quarter of that TTL,
// nothing can be learned; a driver that does not renew loses its leases however fast the service is.
type steady struct {
	*waiter // the client of such leases, on keys that are free or will be at once
	t       *T
	tm      *tamper
	ttl     time.Duration
	late    func() time.Duration
}

func (t *T) steady(ttl time.Duration) *steady {
	tm := t.tamper()
	return &steady{t.waiterOf(tm.backend(), lock.WithTTL(ttl)), t, tm, ttl, t.lateness()}
}

// held returns if the lease is held.
func (s *steady) held(l *lock.Lease, what string) { s.kept(l.Err(), what) }

// kept returns if err, of an operation of the holder, is nil.
func (s *steady) kept(err error, what string) {
	if err == nil {
		return
	}
	if stood := max(s.tm.requests.longest(), s.late()); stood >= s.ttl/4 {
		s.t.again("%s: want it held, got %v; of a TTL of %v the service or this machine stood still for %v", what, err, s.ttl, stood)
	}
	s.t.fatalf("%s: want it held, got %v", what, err)
}

// refused makes an attempt by another client, which must be refused while l is held.
func (s *steady) refused(l *lock.Lease, m lock.Mutex, what string) {
	got, err := m.TryLock(s.t.ctx)
	switch {
	case err == nil:
		s.held(l, what) // a holder that renewed too late is no longer excluded
		s.t.fatalf("%s: want ErrLocked, it was granted %s", what, leaseText(got))
	case !errors.Is(err, lock.ErrLocked):
		s.t.fatalf("%s: want ErrLocked, got %v", what, err)
	}
}

// unlock ends the lease.
func (s *steady) unlock(l *lock.Lease, what string) {
	var err error
	s.t.within(2*s.t.slack(), what, func() { err = l.Unlock(s.t.ctx) })
	if errors.Is(err, lock.ErrLost) {
		s.kept(err, what)
	}
	if err != nil {
		s.t.fatalf("%s: want Unlock to return nil, got %v", what, err)
	}
}

// requests measures for how long there was no answer: from when a request began until it, or after a failure a later
// one, was answered.
type requests struct {
	mu      sync.Mutex
	running map[int]time.Time
	last    int
	failing time.Time // since when there was no answer; zero after an answer
	worst   time.Duration
}

// begin notes a request; what it returns is called at its end.
func (r *requests) begin() func(error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[int]time.Time{}
	}
	r.last++
	n := r.last
	r.running[n] = time.Now()
	return func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		start := r.running[n]
		delete(r.running, n)
		answered := err == nil || errors.Is(err, backend.ErrLocked) || errors.Is(err, backend.ErrLost)
		switch {
		case !answered && (r.failing.IsZero() || start.Before(r.failing)):
			r.failing = start
		case answered && start.After(r.failing) && !r.failing.IsZero():
			start, r.failing = r.failing, time.Time{}
		}
		r.worst = max(r.worst, time.Since(start))
	}
}

// longest counts what has no answer yet, too.
func (r *requests) longest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	worst := r.worst
	if !r.failing.IsZero() {
		worst = max(worst, time.Since(r.failing))
	}
	for _, start := range r.running {
		worst = max(worst, time.Since(start))
	}
	return worst
}
