package lock_test

import (
	"cmp"
	"context"
	"errors"
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

// far is a service that is half of roundTrip away, each way. Time is the bubble's.
type far struct {
	*memlock.Backend
	mu    sync.Mutex
	calls map[string]int
	away  time.Duration // there and back; zero: roundTrip
	mute  bool          // grants do not say until when they are kept
	// spoil, if set, makes an operation fail after it was executed.
	spoil func(op string) error
}

const roundTrip = 4 * time.Millisecond

func newFar(s *memlock.Space) *far { return &far{Backend: s.Backend(), calls: map[string]int{}} }

func (f *far) exchange(ctx context.Context, op string, execute func() error) error {
	f.mu.Lock()
	f.calls[op]++
	spoil, away := f.spoil, cmp.Or(f.away, roundTrip)
	f.mu.Unlock()
	time.Sleep(away / 2) // of the bubble's clock
	err := execute()
	if op != "wait" || ctx.Err() == nil {
		time.Sleep(away / 2)
	}
	if spoil != nil {
		if spoilt := spoil(op); spoilt != nil {
			return spoilt
		}
	}
	return err
}

func (f *far) granted(g backend.Grant) *farGrant { return &farGrant{g.(keeperGrant), f} }

func (f *far) TryAcquire(ctx context.Context, req backend.Request) (out backend.Grant, err error) {
	err = f.exchange(ctx, "try", func() error {
		g, err := f.Backend.TryAcquire(ctx, req)
		if err == nil {
			out = f.granted(g)
		}
		return err
	})
	return out, err
}

func (f *far) Acquire(ctx context.Context, req backend.Request) (out backend.Grant, err error) {
	err = f.exchange(ctx, "wait", func() error {
		g, err := f.Backend.Acquire(ctx, req)
		if err == nil {
			out = f.granted(g)
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, backend.Uncertain(err)
	}
	return out, err
}

func (f *far) Abandon(ctx context.Context, req backend.Request) error {
	return f.exchange(ctx, "abandon", func() error { return f.Backend.Abandon(ctx, req) })
}

func (f *far) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

type keeperGrant interface {
	backend.Grant
	backend.Keeper
}

type farGrant struct {
	keeperGrant
	f *far
}

func (g *farGrant) Until() time.Time {
	if g.f.mute {
		return time.Time{}
	}
	return g.keeperGrant.Until()
}

func (g *farGrant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.f.exchange(ctx, "renew", func() error { return g.keeperGrant.Renew(ctx, ttl) })
}

func (g *farGrant) Release(ctx context.Context) error {
	return g.f.exchange(ctx, "release", func() error { return g.keeperGrant.Release(ctx) })
}

// crowd is goroutines that take a lock in turn, each some times, and what came of it.
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

// An old grant is not passed on, so that others need not wait for long; those who wait
// stand in the backend's queue by then.
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
		// Both clients stand in the queue, so the one has every other grant.
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
				wantErr(t, "the one who leaves", got.err, context.DeadlineExceeded, lock.ErrLocked)
				wantNot(t, "the one who leaves", got.err, lock.ErrUncertain)
				wantNot(t, "the one who leaves", got.err, context.Canceled)
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

				// The last takes the attempt with it.
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
				wantErr(t, "the last who leaves", err, context.DeadlineExceeded, lock.ErrLocked)
				wantNot(t, "the last who leaves", err, context.Canceled)
				if how == "acknowledged" {
					wantNot(t, "the last who leaves", err, lock.ErrUncertain)
				} else {
					wantErr(t, "the last who leaves, not acknowledged", err, lock.ErrUncertain)
				}
				if info, err := c.Inspect(t.Context(), "k"); err != nil || len(info.Waiters) > 0 {
					t.Errorf("waiters are left: %+v, %v", info, err)
				}
				_ = holder.Unlock(t.Context())
			})
		})
	}
}

// TestHandOffLoss wants the holder of the moment, and no other, to learn that the grant
// is gone, and those behind it to ask the backend again.
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
					if _, err := admin.Break(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
				case "renewal":
					if err := admin.Abandon(t.Context(), backend.Request{Key: "k", Owner: second.BackendHold().Owner()}); err != nil {
						t.Fatal(err)
					}
					wantErr(t, "Check", second.Check(t.Context()), lock.ErrLost)
				case "broken here":
					removed, err := c.Break(t.Context(), "k")
					if err != nil || removed == nil || removed.Owner != second.Owner() || removed.Token != two {
						t.Fatalf("want the present holder, %s with token %d, got %+v, %v", second.Owner(), two, removed, err)
					}
				}
				synctest.Wait() // and no longer: the service has told it
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

// A service whose attempts fail fails those for whom they were made, once.
func TestHandOffFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		f := newFar(space)
		var once sync.Once
		f.spoil = func(op string) (err error) {
			if op == "wait" {
				once.Do(func() { err = errNet })
			}
			return err
		}
		c := newClient(t, f, lock.WithLocalHandOff())
		m := c.Mutex("k")
		start := time.Now()
		first := queue(t, t.Context(), m, 1)[0]
		second := queue(t, t.Context(), m, 1)[0]
		wantErr(t, "the one that asked", (<-first).err, errNet)
		if took := time.Since(start); took != roundTrip {
			t.Errorf("the failure took %v, want %v", took, roundTrip)
		}
		// The grant that the spoilt answer hid is a stranger's to the second attempt.
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

// What others could mistake for the terms of their own lease is not passed on.
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

// TryLock does not overtake those who wait, and does not ask for what it can know.
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
		for of, want := range map[*lock.Client]lock.Holder{
			c:     {Party: backend.Party{Owner: l.Owner()}, Token: token},
			other: {Party: backend.Party{Owner: l.BackendHold().Owner()}, Token: l.BackendHold().Token() << 8},
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
		if l.BackendHold().Owner() != first.Owner() || l.BackendHold().Token() != token>>8 {
			t.Errorf("the backend granted the first attempt, BackendHold is %+v", l.BackendHold())
		}
	})
}

// Closing a client with a crowd leaves nothing behind.
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

// Where a driver leaves the counting to the core, the request counts that the grant is
// of, and not the Lock that gets it.
func TestHandOffTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(memlock.NewSpace())
		f.away, f.mute = time.Second, true
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

// An observer that panics takes its own Lock with it and no other, and leaves nothing.
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

// together renews many at once, as long as they are its own.
type together struct{ *far }

func (f together) RenewBatch(ctx context.Context, all []backend.Renewal) []error {
	errs := make([]error, len(all))
	err := f.exchange(ctx, "batch", func() error {
		for i, r := range all {
			if g, ok := r.Grant.(*farGrant); ok {
				errs[i] = g.keeperGrant.Renew(ctx, r.TTL)
			} else {
				errs[i] = backend.ErrInvalid
			}
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// What is renewed together is the backend's grants.
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
		if token, _ := l.Token(); token != l.BackendHold().Token()<<8 {
			t.Errorf("%s: token %d of the backend's %d", name, token, l.BackendHold().Token())
		}
		if caps := c.Capabilities(); caps.Order != backend.Unordered || !strings.Contains(strings.Join(caps.Caveats, " "), "local hand-off") {
			t.Errorf("%s: local hand-off is not declared: %+v", name, caps)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
