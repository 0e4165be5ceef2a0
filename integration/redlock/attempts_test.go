package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// empty waits until no node stores anything for the lock.
func (s *set) empty(t *testing.T, name string) {
	t.Helper()
	s.eventually(t, timeout, "nothing left of "+name, func() error {
		left, err := s.leftovers(t.Context(), name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%v", left)
		}
		return err
	})
}

// TestPartialAcquire: nothing remains of an attempt with a minority of grants.
func TestPartialAcquire(t *testing.T) {
	t.Parallel() // mostly it waits
	s := newSet(t)
	c, _ := s.clientWith(map[string]string{"restart_delay": "1h"})
	m := c.Mutex("k", lock.WithTTL(time.Hour))
	for _, n := range []int{1, 2, 3} {
		if err := s.admins[n].Set(t.Context(), "lock:k", "another", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Fatalf("TryLock of a key that another has at a majority: want ErrLocked, got %v", err)
	}
	for _, n := range []int{0, 4} {
		s.eventually(t, 15*time.Second, "the vote of a free node given back", func() error {
			if n, err := s.admins[n].Exists(t.Context(), "lock:k").Result(); err != nil || n > 0 {
				return fmt.Errorf("%d, %w", n, err)
			}
			return nil
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := m.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Lock with a deadline: %v", err)
	}
	for _, n := range []int{1, 2, 3} {
		s.admins[n].Del(t.Context(), "lock:k")
	}
	s.empty(t, "k")
}

// TestSlowAcquire: answers after the end of an attempt make no grant and leave none. The TTL is
// much longer than the timeout of the test.
func TestSlowAcquire(t *testing.T) {
	t.Parallel() // mostly it waits
	s := newSet(t)
	c, l := s.clientWith(map[string]string{"restart_delay": "1h", "dial_timeout": "20s", "read_timeout": "20s"}, lock.WithTTL(time.Hour))
	l.Delay(1500 * time.Millisecond) // each way, and a majority is waited for 2 s
	if _, err := c.Mutex("k").TryLock(t.Context()); err == nil {
		t.Fatal("granted by answers that came too late")
	}
	l.Heal()
	s.empty(t, "k")
	if l, err := c.Mutex("k").TryLock(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	} else if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLateAcquire: a request that a hung node executes after the lock was released or abandoned
// leaves nothing.
func TestLateAcquire(t *testing.T) {
	t.Parallel() // mostly it waits
	s := newSet(t)
	c, _ := s.clientWith(map[string]string{"restart_delay": "1h", "read_timeout": "5s"}) // no vote runs out meanwhile
	for _, pause := range []time.Duration{50 * time.Millisecond, 1800 * time.Millisecond} {
		for _, n := range []int{1, 3} {
			if err := s.servers[n].Pause(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			l, err := c.Mutex(fmt.Sprintf("k%d", i), lock.WithTTL(time.Hour)).TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(pause) // the length of the hang
		for _, n := range []int{1, 3} {
			if err := s.servers[n].Resume(); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		for i := range 3 {
			s.empty(t, fmt.Sprintf("k%d", i))
		}
		t.Logf("after %v: nothing left %v after the nodes went on", pause, time.Since(begun).Round(time.Millisecond))
	}
}

// TestLostAcquire: nodes grant without an answer, and are out of reach when the lock is
// released. They get the release later.
func TestLostAcquire(t *testing.T) {
	t.Parallel() // mostly it waits
	s := newSet(t)
	c, links := s.clientWith(map[string]string{"restart_delay": "1h", "read_timeout": "1s"}, lock.WithTTL(time.Hour))
	try := func(name string) *lock.Lease {
		t.Helper()
		l, err := c.Mutex(name).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	granted := func(node int, name string) {
		t.Helper()
		s.eventually(t, timeout, fmt.Sprintf("a grant of %s at node %d", name, node), func() error {
			return s.admins[node].Get(t.Context(), "lock:"+name).Err()
		})
	}
	before := try("before")
	granted(0, "before") // so there is a connection to it; without replies a new one could not begin
	granted(4, "before")
	if err := before.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.empty(t, "before")
	for _, n := range []int{0, 4} {
		links.proxies[n].BlackholeReplies()
	}
	l := try("k")
	for _, n := range []int{0, 4} {
		granted(n, "k")
		links.proxies[n].Cut()
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	for _, n := range []int{0, 4} {
		if err := s.admins[n].Get(t.Context(), "lock:k").Err(); err != nil {
			t.Errorf("node %d, out of reach, holds the lock no more: %v", n, err)
		}
	}
	links.Heal()
	s.empty(t, "k")
}
