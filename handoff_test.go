package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// crowd records the leases of goroutines that lock in turn, each some times.
type crowd struct {
	mu     sync.Mutex
	order  []string
	tokens []uint64
	inside int
}

func (w *crowd) join(t *testing.T, wg *sync.WaitGroup, m lock.Mutex, name string, times int, hold time.Duration) {
	wg.Go(func() {
		for range times {
			l, err := m.Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			token, _ := l.Token()
			w.mu.Lock()
			w.inside++
			if w.inside != 1 {
				t.Errorf("%s holds beside another", name)
			}
			w.order, w.tokens = append(w.order, name), append(w.tokens, token)
			w.mu.Unlock()
			time.Sleep(hold)
			w.mu.Lock()
			w.inside--
			w.mu.Unlock()
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// grants returns how many holds each of the backend's grants has served.
func (w *crowd) grants() map[uint64]int {
	out := map[uint64]int{}
	for _, t := range w.tokens {
		out[t>>8]++
	}
	return out
}

func TestHandOffCostsARoundTripInSixteen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(memlock.NewSpace())
		m := newClient(t, f, lock.WithLocalHandOff()).Mutex("k")
		var w crowd
		var wg sync.WaitGroup
		start := time.Now()
		for n := range 16 {
			w.join(t, &wg, m, fmt.Sprint(n), 20, 0)
			synctest.Wait() // so that the order of their coming is known
		}
		wg.Wait()
		took := time.Since(start)
		if len(w.order) != 320 || !slices.IsSorted(w.tokens) || len(slices.Compact(slices.Clone(w.tokens))) != 320 {
			t.Fatalf("want 320 holds whose tokens rise, got %d: %v", len(w.order), w.tokens)
		}
		for token, holds := range w.grants() {
			if holds > 16 {
				t.Errorf("grant %d has served %d holds, want 16 at most", token, holds)
			}
		}
		if waits, frees := f.count("wait"), f.count("release"); waits > 30 || frees > 30 {
			t.Errorf("320 holds: want not much more than one attempt and one release for 16, got %d and %d", waits, frees)
		}
		if most := 30 * roundTrip; took > most {
			t.Errorf("320 holds took %v, want at most %v", took, most)
		}
		if got := strings.Join(w.order[:16], " "); got != "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15" {
			t.Errorf("want the order of arrival, got %s", got)
		}
	})
}

// An old grant is not passed on, so other clients do not wait for long. The waiters are in
// the queue of the backend by then.
func TestHandOffBoundsTheWaitOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		var w crowd
		var wg sync.WaitGroup
		crowded := newClient(t, newFar(space), lock.WithLocalHandOff()).Mutex("k")
		for range 32 {
			w.join(t, &wg, crowded, "crowd", 6, 3*time.Millisecond)
		}
		synctest.Wait()
		w.join(t, &wg, newClient(t, newFar(space), lock.WithLocalHandOff()).Mutex("k"), "one", 20, 3*time.Millisecond)
		wg.Wait()
		for token, holds := range w.grants() {
			if holds > 4 {
				t.Errorf("grant %d has served %d holds of 3 ms, want 4 at most: it is older than 10 ms then", token, holds)
			}
		}
		// Both clients are in the queue, so the one has every other grant.
		last, between := slices.Index(w.order, "one"), 0
		for n := 1; n < 20; n++ {
			next := last + 1 + slices.Index(w.order[last+1:], "one")
			between = max(between, next-last-1)
			last = next
		}
		if between > 4 {
			t.Errorf("the crowd held the lock %d times between two holds of the other client, want 4 at most", between)
		}
	})
}

// queue makes n goroutines wait for m, one after the other.
func queue(t *testing.T, ctx context.Context, m lock.Mutex, n int) []<-chan lockResult {
	t.Helper()
	var out []<-chan lockResult
	for range n {
		ch := make(chan lockResult, 1)
		go func() {
			l, err := m.Lock(ctx)
			ch <- lockResult{l, err}
		}()
		synctest.Wait()
		out = append(out, ch)
	}
	return out
}

type lockResult struct {
	l   *lock.Lease
	err error
}

func TestHandOffCancel(t *testing.T) {
	for _, how := range []string{"acknowledged", "not acknowledged"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				holder := mustLock(t, newClient(t, space.Backend(), lock.WithMetadata("holder")).Mutex("k"))
				f := newFar(space)
				c := newClient(t, f, lock.WithLocalHandOff())
				m := c.Mutex("k")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				first := queue(t, ctx, m, 1)[0]
				second := queue(t, t.Context(), m, 1)[0]
				got := <-first
				wantErr(t, "the request that leaves", got.err, context.DeadlineExceeded, lock.ErrLocked)
				wantNot(t, "the request that leaves", got.err, lock.ErrUncertain)
				wantNot(t, "the request that leaves", got.err, context.Canceled)
				if !strings.Contains(got.err.Error(), `locked by "holder"`) {
					t.Errorf("%q does not name the holder", got.err)
				}
				if f.count("abandon") != 0 {
					t.Error("the attempt was abandoned, although another waits for it")
				}
				if err := holder.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				got = <-second
				if got.err != nil {
					t.Fatal(got.err)
				}
				if f.count("wait") != 1 {
					t.Errorf("%d attempts for one grant", f.count("wait"))
				}
				if err := got.l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}

				// The last request cancels the attempt.
				holder = mustLock(t, newClient(t, space.Backend()).Mutex("k"))
				if how != "acknowledged" {
					f.spoil = func(op string) error {
						if op == "abandon" {
							return errNet
						}
						return nil
					}
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := m.Lock(ctx)
				wantErr(t, "the last request that leaves", err, context.DeadlineExceeded, lock.ErrLocked)
				wantNot(t, "the last request that leaves", err, context.Canceled)
				if how == "acknowledged" {
					wantNot(t, "the last request that leaves", err, lock.ErrUncertain)
				} else {
					wantErr(t, "the last request that leaves, not acknowledged", err, lock.ErrUncertain)
				}
				if info, err := c.Inspect(t.Context(), "k"); err != nil || len(info.Waiters) > 0 {
					t.Errorf("waiters are left: %+v, %v", info, err)
				}
				_ = holder.Unlock(t.Context())
			})
		})
	}
}

// The present holder, and no other, is notified that the grant has ended. The requests behind
// it send another attempt.
func TestHandOffLoss(t *testing.T) {
	for _, how := range []string{"pushed", "renewal", "broken here"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				f := newFar(space)
				var mu sync.Mutex
				var lost []uint64
				c := newClient(t, f, lock.WithLocalHandOff(), lock.WithObserver(&lock.Observer{
					Lost: func(_ context.Context, e lock.Event) {
						mu.Lock()
						defer mu.Unlock()
						lost = append(lost, e.Token)
					},
				}))
				m := c.Mutex("k")
				admin := space.Backend()
				first := mustLock(t, m)
				waiters := queue(t, t.Context(), m, 2)
				if err := first.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				second := (<-waiters[0]).l
				one, _ := first.Token()
				two, _ := second.Token()
				if two != one+1 || f.count("release") != 0 {
					t.Fatalf("want the grant passed on, got token %d after %d and %d releases", two, one, f.count("release"))
				}
				switch how {
				case "pushed":
					if _, err := admin.Break(t.Context(), "k", ""); err != nil {
						t.Fatal(err)
					}
				case "renewal":
					owner, _ := second.BackendHold()
					if err := admin.Abandon(t.Context(), backend.Request{Key: "k", Owner: owner}); err != nil {
						t.Fatal(err)
					}
					wantErr(t, "Check", second.Check(t.Context()), lock.ErrLost)
				case "broken here":
					removed, err := c.Break(t.Context(), "k")
					if err != nil || removed == nil || removed.Owner != second.Owner() || removed.Token != two {
						t.Fatalf("want the present holder, %s with token %d, got %+v, %v", second.Owner(), two, removed, err)
					}
				}
				synctest.Wait() // and no longer: the service has notified it
				wantErr(t, "the holder", second.Err(), lock.ErrLost)
				third := <-waiters[1]
				if third.err != nil {
					t.Fatal(third.err)
				}
				if three, _ := third.l.Token(); three>>8 <= two>>8 || three&0xff != 0 {
					t.Errorf("token %d after %d: want one of another grant", three, two)
				}
				if err := third.l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(lost, []uint64{two}) {
					t.Errorf("lost: want the second alone, %d, got %d", two, lost)
				}
			})
		})
	}
}

// An attempt that fails fails the requests for which it was sent, once.
func TestHandOffFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		f := newFar(space)
		var once sync.Once
		f.spoil = func(op string) (err error) {
			if op == "wait" {
				once.Do(func() { err = backend.NotExecuted(errNet) })
			}
			return err
		}
		c := newClient(t, f, lock.WithLocalHandOff())
		m := c.Mutex("k")
		start := time.Now()
		first := queue(t, t.Context(), m, 1)[0]
		second := queue(t, t.Context(), m, 1)[0]
		wantErr(t, "the request that sent the attempt", (<-first).err, errNet)
		if took := time.Since(start); took != roundTrip {
			t.Errorf("the failure took %v, want %v", took, roundTrip)
		}
		// The grant of the failed attempt belongs to another owner than the second attempt.
		if err := f.Backend.Abandon(t.Context(), backend.Request{Key: "k", Owner: holderOf(t, space, "k")}); err != nil {
			t.Fatal(err)
		}
		got := <-second
		if got.err != nil {
			t.Fatalf("one that came after the attempt had begun: want another attempt, got %v", got.err)
		}
		_ = got.l.Unlock(t.Context())
	})
}

func holderOf(t *testing.T, space *memlock.Space, key string) string {
	t.Helper()
	info, err := space.Backend().Inspect(t.Context(), key)
	if err != nil || info.Holder == nil {
		t.Fatalf("%+v, %v", info, err)
	}
	return info.Holder.Owner
}

// A grant with other terms than those of the next request is not passed on.
func TestHandOffNotPassedOn(t *testing.T) {
	for _, c := range []struct {
		name    string
		opts    []lock.MutexOption // of the second
		spend   func(t *testing.T, l *lock.Lease)
		release int // by the first's Unlock
	}{
		{"young", nil, nil, 0},
		{"another TTL", []lock.MutexOption{lock.WithTTL(time.Minute)}, nil, 1},
		{"other metadata", []lock.MutexOption{lock.WithMetadata("other")}, nil, 1},
		{"extended", nil, func(t *testing.T, l *lock.Lease) {
			if err := l.Extend(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"renewed", nil, func(t *testing.T, l *lock.Lease) {
			if err := l.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"old", nil, func(*testing.T, *lock.Lease) { time.Sleep(10 * time.Millisecond) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(memlock.NewSpace())
				cl := newClient(t, f, lock.WithLocalHandOff())
				l := mustLock(t, cl.Mutex("k"))
				next := queue(t, t.Context(), cl.Mutex("k", c.opts...), 1)[0]
				if c.spend != nil {
					c.spend(t, l)
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := f.count("release"); got != c.release {
					t.Errorf("want %d releases, got %d", c.release, got)
				}
				got := <-next
				if got.err != nil {
					t.Fatal(got.err)
				}
				before, _ := l.Token()
				if after, _ := got.l.Token(); after <= before || (after>>8 == before>>8) != (c.release == 0) {
					t.Errorf("token %d after %d", after, before)
				}
				if err := got.l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestHandOffMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFar(memlock.NewSpace()), lock.WithLocalHandOff())
		m := c.Mutex("k", lock.WithMinHold(time.Second))
		start := time.Now()
		l := mustLock(t, m)
		next := queue(t, t.Context(), m, 1)[0]
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-next
		if took := time.Since(start); got.err != nil || took < time.Second {
			t.Fatalf("the next after %v: %v", took, got.err)
		}
	})
}
