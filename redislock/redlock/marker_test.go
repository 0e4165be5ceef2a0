package redlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// Clients of {1, 2, 3} and of {1, 2, 4} could both have a majority.
func TestRedlockOtherSet(t *testing.T) {
	cs := masters(t, 4)
	first := func(opts ...Option) (*Backend, error) { return New(cs[:3], opts...) }
	r, err := first()
	must(t, err)
	defer r.Close(t.Context())
	if r, err = New([]redis.UniversalClient{cs[0], cs[1], cs[3]}); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "docs/backends/redlock.md") {
		t.Errorf("another set: %v, %v", r, err)
	}
	if n := cs[3].DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("the new node has %d keys", n)
	}
	r, err = New([]redis.UniversalClient{cs[2], cs[1], cs[0]})
	must(t, err)
	defer r.Close(t.Context())
	used, err := first() // a request of r could reach the last node, and mark it, when its reply is not awaited any more
	must(t, err)
	g, err := used.TryAcquire(t.Context(), redlockRequest("k", 1))
	must(t, err)
	must(t, g.Release(t.Context()))
	must(t, used.Close(t.Context()))
	for _, c := range cs {
		eventually(t, "the node has the release", func() bool { return c.Exists(t.Context(), "lock:k").Val() == 0 })
		must(t, c.Del(t.Context(), markerKey(DefaultPrefix)).Err()) // as documented
	}
	other, err := New([]redis.UniversalClient{cs[0], cs[1], cs[3]})
	must(t, err)
	defer other.Close(t.Context())
	_, err = r.TryAcquire(t.Context(), redlockRequest("k", 2))
	if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "another set") {
		t.Errorf("a client of the former set: %v", err)
	}
	g, err = other.TryAcquire(t.Context(), redlockRequest("k", 3))
	must(t, err)
	must(t, g.Release(t.Context()))
}

// Clients count a quarantine together: each knows how much of it had passed when it first saw
// it. The clock of the node does not count.
func TestRedlockQuarantineIsCountedByClients(t *testing.T) {
	cs := masters(t, 3)
	newRedlock(t, cs, WithRestartDelay(time.Minute))
	marker := markerKey(DefaultPrefix)
	for _, c := range cs[:2] {
		must(t, c.Del(t.Context(), marker).Err())
	}
	asks := func(passed time.Duration) time.Duration {
		t.Helper()
		r := newRedlock(t, cs, WithRestartDelay(time.Minute))
		req := redlockRequest("k", 1)
		for range 2 { // the first request finds the quarantine
			_, err := r.TryAcquire(t.Context(), req)
			if err == nil {
				return 0
			}
			for _, n := range r.nodes {
				n.mu.Lock()
				n.quarantine.at = n.quarantine.at.Add(-passed) // as if it had waited
				n.mu.Unlock()
			}
		}
		_, err := r.TryAcquire(t.Context(), req)
		if err == nil {
			return 0
		}
		_, s, _ := strings.Cut(err.Error(), "votes again in ")
		s, _, _ = strings.Cut(s, ";")
		left, err := time.ParseDuration(s)
		must(t, err)
		return left
	}
	if left := asks(0); left < 50*time.Second {
		t.Errorf("%v left at first", left)
	}
	if left := asks(15 * time.Second); left > 46*time.Second || left < 20*time.Second {
		t.Errorf("%v left after 15 s or 30 s", left)
	}
	if left := asks(50 * time.Second); left != 0 {
		t.Errorf("%v left after the whole quarantine", left)
	}
}
