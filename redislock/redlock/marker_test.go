package redlock

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// restart makes a server lose its locks, and its marker too if it is emptied.
func (f *fake) restart(emptied bool) {
	f.empty()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run++; emptied {
		f.marker = ""
	}
}

// A new set votes at once. A node that restarted without its data, or with an older part of it, does not before the
// delay has passed by the clocks of the clients.
func TestRedlockQuarantine(t *testing.T) {
	for what, emptied := range map[string]bool{"empty": true, "with a part": false} {
		t.Run(what, func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, c cluster) {
				r, _ := c.open(WithRestartDelay(time.Minute))
				g, err := r.TryAcquire(t.Context(), redlockRequest("k", 1))
				if err != nil {
					t.Fatalf("a new set: %v", err)
				}
				must(t, g.Release(t.Context()))
				for i := range 2 {
					c.servers[i].restart(emptied)
				}
				begun := time.Now()
				for n := 2; ; n++ {
					g, err := r.TryAcquire(t.Context(), redlockRequest("k", n))
					if err == nil {
						must(t, g.Release(t.Context()))
						break
					}
					if !strings.Contains(err.Error(), "1 of 3 nodes voted, want 2") || !strings.Contains(err.Error(), "votes again in") {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				if took := time.Since(begun); took < time.Minute || took > 70*time.Second {
					t.Errorf("a majority without its data voted after %v, want a minute", took)
				}
			})
		})
	}
}

// Clients count a quarantine together: a client that opens later goes on from there. The time in which none is open, and
// the clock of the node, do not count.
func TestRedlockQuarantineIsCountedByClients(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, _ := c.open(WithRestartDelay(time.Minute))
		must(t, r.Close(t.Context()))
		for i := range 2 {
			c.servers[i].restart(true)
		}
		counts := func(d time.Duration, want bool) {
			t.Helper()
			r, _ := c.open(WithRestartDelay(time.Minute))
			defer func() { must(t, r.Close(t.Context())) }()
			g, err := r.TryAcquire(t.Context(), redlockRequest("k", 1))
			if err == nil {
				must(t, g.Release(t.Context()))
			}
			if (err == nil) != want {
				t.Errorf("after %v: want a grant: %v, got %v", d, want, err)
			}
			time.Sleep(d)
			synctest.Wait()
		}
		counts(25*time.Second, false)
		for _, s := range c.servers {
			s.mu.Lock()
			s.step += time.Hour
			s.mu.Unlock()
		}
		time.Sleep(time.Hour)
		counts(25*time.Second, false)
		counts(20*time.Second, false)
		counts(0, true)
	})
}

// Clients of {1, 2, 3} and of {1, 2, 4} could both have a majority.
func TestRedlockOtherSet(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		if _, err := New(clientsOf(ms), WithNodeSet("another")); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "docs/backends/redlock.md") {
			t.Errorf("another set: %v", err)
		}
		for _, s := range c.servers {
			s.mu.Lock()
			s.marker = "" // as documented
			s.mu.Unlock()
		}
		other, err := New(clientsOf(ms), WithNodeSet("another"))
		must(t, err)
		defer other.Close(t.Context())
		if _, err = r.TryAcquire(t.Context(), redlockRequest("k", 2)); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "another set") {
			t.Errorf("a client of the former set: %v", err)
		}
		g, err := other.TryAcquire(t.Context(), redlockRequest("k", 3))
		must(t, err)
		must(t, g.Release(t.Context()))
	})
}

// A new set is recognized although a node answers late. If one does not answer, its set does not count as new, and the
// nodes without a marker vote after the delay.
func TestRedlockNewSet(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		first, ms := c.open()
		must(t, first.Close(t.Context()))
		for _, s := range c.servers {
			s.mu.Lock()
			s.marker = ""
			s.mu.Unlock()
		}
		fakeDelay.Store(int64(300 * time.Millisecond))
		defer fakeDelay.Store(0)
		r, err := New(clientsOf(ms), WithNodeSet("test"), WithNodeTimeout(500*time.Millisecond))
		must(t, err)
		defer r.Close(t.Context())
		for i, s := range c.servers {
			s.mu.Lock()
			if m, ok := parseMarker(s.marker); !ok || m.passed < time.Hour {
				t.Errorf("node %d: marker %q, want that of a new set", i, s.marker)
			}
			s.mu.Unlock()
		}
	})
}
