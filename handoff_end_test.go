package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// TryLock does not overtake waiters, and does not ask the backend about a young grant.
func TestHandOffTryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(memlock.NewSpace())
		c := newClient(t, f, lock.WithLocalHandOff())
		m := c.Mutex("k")
		l := mustLock(t, m)
		_, err := c.Mutex("k", lock.WithTTL(time.Minute)).TryLock(t.Context())
		var locked *lock.LockedError
		if !errors.As(err, &locked) || locked.Holder.Owner != l.Owner() {
			t.Errorf("want the holder here, got %v", err)
		}
		if f.count("try") != 1 {
			t.Errorf("the backend was asked %d times, want once", f.count("try"))
		}
		time.Sleep(time.Second)
		_, err = m.TryLock(t.Context())
		wantErr(t, "TryLock beside an old grant", err, lock.ErrLocked)
		if f.count("try") != 2 {
			t.Error("an old grant was believed without asking the backend")
		}
		token, _ := l.Token()
		if !errors.As(err, &locked) || locked.Holder.Token != token {
			t.Errorf("want token %d, got %v", token, err)
		}
	})
}

func TestHandOffIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		c := newClient(t, newFar(space), lock.WithLocalHandOff())
		other := newClient(t, newFar(space), lock.WithLocalHandOff())
		m := c.Mutex("k")
		first := mustLock(t, m)
		next := queue(t, t.Context(), m, 1)[0]
		if err := first.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := (<-next).l
		token, _ := l.Token()
		owner, granted := l.BackendHold()
		for of, want := range map[*lock.Client]lock.Holder{
			c:     {Contender: backend.Contender{Owner: l.Owner()}, Token: token},
			other: {Contender: backend.Contender{Owner: owner}, Token: granted << 8},
		} {
			info, err := of.Inspect(t.Context(), "k")
			if err != nil || info.Holder == nil || info.Holder.Owner != want.Owner || info.Holder.Token != want.Token {
				t.Errorf("Inspect: want owner %s and token %d, got %+v, %v", want.Owner, want.Token, info.Holder, err)
			}
			for info, err := range of.List(t.Context()) {
				if err != nil || info.Holder.Owner != want.Owner || info.Holder.Token != want.Token {
					t.Errorf("List: want owner %s and token %d, got %+v, %v", want.Owner, want.Token, info.Holder, err)
				}
			}
		}
		if owner != first.Owner() || granted != token>>8 {
			t.Errorf("the backend granted the first attempt, BackendHold is %s, %d", owner, granted)
		}
	})
}

// Closing a client with waiters leaves nothing behind.
func TestHandOffClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		c := newClient(t, newFar(space), lock.WithLocalHandOff())
		l := mustLock(t, c.Mutex("k"))
		waiters := queue(t, t.Context(), c.Mutex("k"), 5)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "the holder", l.Err(), lock.ErrClosed)
		for _, w := range waiters {
			wantErr(t, "a waiter", (<-w).err, lock.ErrClosed)
		}
		if info, err := space.Backend().Inspect(t.Context(), "k"); err != nil || info.Holder != nil || len(info.Waiters) > 0 {
			t.Errorf("left behind: %+v, %v", info, err)
		}
	})
}

// Trust counts from the request of the grant, not from the Lock that gets it.
func TestHandOffTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(memlock.NewSpace())
		f.away = time.Second
		m := newClient(t, f, lock.WithLocalHandOff(), lock.WithTTL(2*time.Second), lock.WithoutRenewal()).Mutex("k")
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
		defer cancel()
		first := queue(t, ctx, m, 1)[0]
		time.Sleep(900 * time.Millisecond)
		second := queue(t, t.Context(), m, 1)[0]
		wantErr(t, "the one that asked", (<-first).err, context.DeadlineExceeded)
		got := <-second
		if got.err != nil {
			t.Fatal(got.err)
		}
		if trusted := got.l.Expires().Sub(start); f.count("wait") != 1 || trusted > 2*time.Second {
			t.Errorf("a lease of 2 s, asked for in the beginning, is trusted for %v", trusted)
		}
		if err := got.l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// An observer that panics ends its own Lock and no other, and nothing remains.
func TestHandOffPanic(t *testing.T) {
	for _, when := range []string{"alone", "before its turn", "in its turn"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				goOn := make(chan struct{})
				c := newClient(t, newFar(space), lock.WithLocalHandOff(), lock.WithObserver(&lock.Observer{
					Waiting: func(ctx context.Context, _ lock.Event) {
						if ctx.Value(panics{}) != nil {
							<-goOn
							panic("an observer")
						}
					},
				}))
				holder := mustLock(t, newClient(t, space.Backend()).Mutex("k"))
				recovered := make(chan any, 1)
				go func() {
					defer func() { recovered <- recover() }()
					_, _ = c.Mutex("k").Lock(context.WithValue(t.Context(), panics{}, true))
				}()
				time.Sleep(time.Second)
				var next <-chan lockResult
				if when != "alone" { // it depends on the attempt of the first
					next = queue(t, t.Context(), c.Mutex("k"), 1)[0]
				}
				free := func() {
					if err := holder.Unlock(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if when == "in its turn" {
					free()
					time.Sleep(roundTrip)
					synctest.Wait()
				}
				close(goOn)
				if <-recovered == nil {
					t.Error("the panic was swallowed")
				}
				if when == "alone" {
					time.Sleep(time.Second)
					next = queue(t, t.Context(), c.Mutex("k"), 1)[0]
				}
				if when != "in its turn" {
					free()
				}
				got := <-next
				if got.err != nil {
					t.Fatal(got.err)
				}
				time.Sleep(time.Second)
				wantErr(t, "another client beside the holder", tryErr(t, newClient(t, space.Backend()).Mutex("k")), lock.ErrLocked)
				if err := got.l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if info, err := space.Backend().Inspect(t.Context(), "k"); err != nil || info.Holder != nil || len(info.Waiters) > 0 {
					t.Errorf("left behind: %+v, %v", info, err)
				}
			})
		})
	}
}

type panics struct{}

func tryErr(t *testing.T, m lock.Mutex) error {
	_, err := m.TryLock(t.Context())
	return err
}

// A batch contains the grants of the backend, not the turns.
func TestHandOffRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(memlock.NewSpace())
		c := newClient(t, together{f}, lock.WithLocalHandOff())
		var held []*lock.Lease
		for n := range 40 {
			m := c.Mutex(fmt.Sprint(n))
			l := mustLock(t, m)
			next := queue(t, t.Context(), m, 1)[0]
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			held = append(held, (<-next).l)
		}
		var wg sync.WaitGroup
		for _, l := range held {
			wg.Go(func() {
				if err := l.Check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if f.count("batch") == 0 {
			t.Error("nothing was renewed together")
		}
	})
}

func TestHandOffIsDeclared(t *testing.T) {
	if _, err := lock.New(newFake(), lock.WithLocalHandOff()); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "fake") {
		t.Errorf("a backend without a queue: want errors.ErrUnsupported, got %v", err)
	}
	if _, err := lock.New(memlock.New(), lock.WithLocalHandOff(), lock.WithRequire(backend.RequireFIFO)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("order=fifo with local hand-off: want errors.ErrUnsupported, got %v", err)
	}
	yes := true
	for name, open := range map[string]func() (*lock.Client, error){
		"URL": func() (*lock.Client, error) { return lock.Open(t.Context(), "mem:?local_hand_off=true") },
		"Config": func() (*lock.Client, error) {
			return lock.OpenConfig(t.Context(), lock.Config{URL: "mem:", LocalHandOff: &yes})
		},
	} {
		c, err := open()
		if err != nil {
			t.Fatal(err)
		}
		l := mustLock(t, c.Mutex("k"))
		_, granted := l.BackendHold()
		if token, _ := l.Token(); token != granted<<8 {
			t.Errorf("%s: token %d of the backend's %d", name, token, granted)
		}
		if caps := c.Capabilities(); caps.Order != backend.Unordered || !strings.Contains(strings.Join(caps.Caveats, " "), "local hand-off") {
			t.Errorf("%s: local hand-off is not declared: %+v", name, caps)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
