package locktest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/locktest"
)

const ttl = 30 * time.Second

func inBubble(t *testing.T, f func(t *testing.T, s *locktest.Service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := locktest.New()
		defer s.Close()
		f(t, s)
	})
}

func client(s *locktest.Service) *lock.Client {
	return s.Client(lock.WithTTL(ttl), lock.WithLogger(nil))
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // 30 seconds take no time
		service := locktest.New()
		defer service.Close()
		client := service.Client(lock.WithTTL(30 * time.Second))
		lease, err := client.Mutex("orders/42").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		service.Outage(true)
		<-lease.Done()
		if took := time.Since(begun); took > 30*time.Second || !errors.Is(lease.Err(), lock.ErrLost) {
			t.Errorf("the lease ended after %v with %v, want ErrLost within 30s", took, lease.Err())
		}
		service.Outage(false)
		if _, err := client.Mutex("orders/42").Lock(t.Context()); err != nil {
			t.Errorf("Lock after the outage: %v", err)
		}
	})
}

// During an outage an error does not say that the lock is held.
func TestErrorOfAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, s *locktest.Service) {
		s.Hold("k")
		s.Outage(true)
		if _, err := client(s).Mutex("k").TryLock(t.Context()); err == nil || errors.Is(err, lock.ErrLocked) {
			t.Errorf("TryLock: got %v, want an error of the service", err)
		}
		if err := client(s).Ping(t.Context()); err == nil {
			t.Error("Ping: want an error")
		}
	})
}

// An outage that is shorter than the lease costs nothing.
func TestShortOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, s *locktest.Service) {
		l, err := client(s).RWMutex("k").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Outage(true)
		time.Sleep(ttl / 2)
		s.Outage(false)
		time.Sleep(2 * ttl)
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A lock that is lost passes to the next waiter, and all readers lose it.
func TestLose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *locktest.Service) {
		var readers []*lock.Lease
		for range 2 {
			l, err := client(s).RWMutex("k").RLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, l)
		}
		got := make(chan error, 1)
		go func() {
			_, err := client(s).Mutex("k").Lock(t.Context())
			got <- err
		}()
		synctest.Wait()
		s.Lose("k")
		if err := <-got; err != nil {
			t.Errorf("the waiter: %v", err)
		}
		for _, l := range readers {
			if <-l.Done(); !errors.Is(l.Err(), lock.ErrLost) {
				t.Errorf("a reader: got %v, want ErrLost", l.Err())
			}
		}
	})
}

func TestMistakes(t *testing.T) {
	s := locktest.New()
	release := s.Hold("k")
	for what, f := range map[string]func(){
		`Lose("free"): it has no holder`: func() { s.Lose("free") },
		`Hold("k"): `:                    func() { s.Hold("k") },
		"invalid ttl -1ns":               func() { s.Client(lock.WithTTL(-1)) },
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, what) {
					t.Errorf("want a panic with %q, got %q", what, p)
				}
			}()
			f()
		}()
	}
	release()
	release()
	url := s.URL()
	s.Close()
	for _, u := range []string{url, "locktest:", "locktest://0?x=1"} {
		if _, err := lock.Open(context.Background(), u); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("Open of %s: got %v, want ErrInvalid", u, err)
		}
	}
}
