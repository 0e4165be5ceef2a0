package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
)

// journal is an observer that notes what is taken and freed, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, what)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}

func (j *journal) observer() lock.Option {
	return lock.WithObserver(&lock.Observer{
		Acquired: func(_ context.Context, e lock.Event) { j.note("+" + e.Name) },
		Released: func(_ context.Context, e lock.Event) { j.note("-" + e.Name) },
	})
}

func TestAllTakesInOneOrderAndFreesInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		c := newClient(t, newFake(), j.observer())
		m := lock.All(c.Mutex("c"), lock.All(c.Mutex("d"), c.Mutex("a")), c.Mutex("b"))
		if m.Name() != "a+b+c+d" {
			t.Errorf("name %q", m.Name())
		}
		l := mustLock(t, m)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := j.text(); got != "+a +b +c +d -d -c -b -a" {
			t.Errorf("got %s", got)
		}
		wantErr(t, "Err", l.Err(), lock.ErrReleased)
		wantErr(t, "cause", context.Cause(l.Context()), lock.ErrReleased)
	})
}

// Two that are given the same locks in opposite order do not wait for each other,
// whether the locks differ by name or only by client.
func TestAllInOppositeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// everybody dwells on each lock, so that any other order would end in a deadlock
		dwell := lock.WithObserver(&lock.Observer{Acquired: func(context.Context, lock.Event) { time.Sleep(time.Second) }})
		c1 := newClient(t, memlock.NewSpace().Backend(), dwell)
		c2 := newClient(t, memlock.NewSpace().Backend(), dwell)
		for name, ms := range map[string][]lock.Mutex{
			"names":   {c1.Mutex("a"), c1.Mutex("b"), c2.Mutex("c")},
			"clients": {c1.Mutex("a"), c2.Mutex("a")},
			"nested":  {c1.Mutex("a"), lock.All(c1.Mutex("c"), c2.Mutex("d")), c2.Mutex("b")},
			"migrate": {lock.Migrate(c1.Mutex("x"), c2.Mutex("x"), lock.PhaseBoth), c1.Mutex("w"), c1.Mutex("y")},
		} {
			back := slices.Clone(ms)
			slices.Reverse(back)
			var inside, turns atomic.Int64
			var all sync.WaitGroup
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a deadlock ends with it
			defer cancel()
			for _, m := range []lock.Mutex{lock.All(ms...), lock.All(back...), lock.All(ms...)} {
				all.Go(func() {
					for range 5 {
						err := lock.Do(ctx, m, func(context.Context) error {
							if inside.Add(1) != 1 {
								t.Errorf("%s: two inside", name)
							}
							time.Sleep(time.Second)
							inside.Add(-1)
							turns.Add(1)
							return nil
						})
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
					}
				})
			}
			all.Wait()
			if turns.Load() != 15 {
				t.Errorf("%s: %d turns", name, turns.Load())
			}
		}
	})
}

// Processes in neighbouring phases of two migrations agree on the order, though the
// names of the locks change with them.
func TestAllOfMigrations(t *testing.T) {
	for _, phases := range [][]lock.Phase{{lock.PhaseOld, lock.PhaseBoth}, {lock.PhaseBoth, lock.PhaseNew}} {
		synctest.Test(t, func(t *testing.T) {
			dwell := lock.WithObserver(&lock.Observer{Acquired: func(context.Context, lock.Event) { time.Sleep(time.Second) }})
			old, new := newClient(t, memlock.NewSpace().Backend(), dwell), newClient(t, memlock.NewSpace().Backend(), dwell)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a deadlock ends with it
			defer cancel()
			var all sync.WaitGroup
			for _, p := range phases {
				m := lock.All(
					lock.Migrate(old.Mutex("a"), new.Mutex("z"), p),
					lock.Migrate(old.Mutex("b"), new.Mutex("c"), p),
					new.Mutex("m"))
				all.Go(func() {
					for range 5 {
						if err := lock.Do(ctx, m, func(context.Context) error { return nil }); err != nil {
							t.Errorf("%v: %v", phases, err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithMinHold(time.Hour)) // which concerns who has worked
		f.take("b", "other", time.Hour)
		m := lock.All(c.Mutex("a"), c.Mutex("b"), c.Mutex("c"))

		_, err := m.TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrLocked)
		var locked *lock.LockedError
		if !errors.As(err, &locked) || locked.Holder.Owner != "other" {
			t.Errorf("%v does not say who holds it", err)
		}
		const want = `lock: try "a+b+c": lock: try "b" on fake: locked by "stranger", token 1, 1h0m0s left`
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
		if f.holder("a") != "" {
			t.Error("a is still held")
		}

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		_, err = m.Lock(ctx)
		wantErr(t, "Lock", err, context.DeadlineExceeded, lock.ErrLocked)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("one deadline of 5s for all: Lock took %v", took)
		}
		if f.holder("a") != "" || f.holder("c") != "" {
			t.Error("something is still held")
		}
	})
}

func TestAllEndsWithAnyPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fa, fb := newFake(), newFake()
		a, b := newClient(t, fa, lock.WithTTL(time.Minute)), newClient(t, fb, lock.WithTTL(10*time.Second))
		l := mustLock(t, lock.All(a.Mutex("a"), b.Mutex("b")))
		granted := time.Now()
		fb.mu.Lock()
		fb.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" {
				return errNet, false
			}
			return nil, true
		}
		fb.mu.Unlock()
		<-l.Done()
		if after := time.Since(granted); after >= 10*time.Second {
			t.Errorf("learned after %v, when another could hold the part", after)
		}
		wantErr(t, "Err", l.Err(), lock.ErrLost, errNet)
		wantErr(t, "cause", context.Cause(l.Context()), lock.ErrLost)
		wantErr(t, "Check", l.Check(t.Context()), lock.ErrLost)
		wantErr(t, "Extend", l.Extend(t.Context(), time.Minute), lock.ErrLost)
		time.Sleep(5 * time.Minute)
		if fa.holder("a") == "" {
			t.Error("the other part is not held until Unlock")
		}
		err := l.Unlock(t.Context())
		wantErr(t, "Unlock", err, lock.ErrLost)
		if fa.holder("a") != "" {
			t.Error("Unlock after a loss left the other part held")
		}
		if again := l.Unlock(t.Context()); again != err {
			t.Errorf("the second Unlock returned %v", again)
		}
	})
}

// A process that was stopped finds the whole over at its first look.
func TestAllLooksAtTheClockOfEachPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFake(), lock.WithTTL(10*time.Second))
		for _, look := range []func(*lock.Lease) error{
			(*lock.Lease).Err,
			func(l *lock.Lease) error { return l.Context().Err() },
			func(l *lock.Lease) error { return l.Check(t.Context()) },
			func(l *lock.Lease) error { return l.Unlock(t.Context()) },
		} {
			l := mustLock(t, lock.All(c.Mutex("a"), c.Mutex("b")))
			l.Parts()[1].StopTimers()
			time.Sleep(10 * time.Second)
			if look(l) == nil {
				t.Error("a part was over, and nobody said so")
			}
			wantErr(t, "Err", l.Err(), lock.ErrLost)
			_ = l.Unlock(t.Context())
		}
	})
}

func TestAllBeginsAgainWhenAPartIsLostInTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("b", "other", time.Hour)
		c := newClient(t, f, lock.WithTTL(time.Hour))
		time.AfterFunc(10*time.Second, func() {
			f.mu.Lock()
			f.keys["a"].owner = "thief" // broken, and taken by somebody else
			f.keys["a"].expires = time.Now().Add(time.Minute)
			lost := slices.Collect(maps.Values(f.onLost)) // of a alone: b has never been granted
			f.mu.Unlock()
			for _, told := range lost {
				told(lock.ErrLost)
			}
		})
		time.AfterFunc(75*time.Second, func() {
			if h := f.holder("a"); h == "" || h == "thief" {
				t.Errorf("a is held by %q: it is not taken again while b is waited for", h)
			}
		})
		l, err := lock.All(c.Mutex("a"), c.Mutex("b")).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Parts() {
			if f.holder(p.Name()) != p.Owner() {
				t.Errorf("%s is not ours", p.Name())
			}
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// One that is lost in the very moment in which the last is granted.
func TestAllBeginsAgainWhenAPartIsLostAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		grants := 0
		c := newClient(t, f, lock.WithObserver(&lock.Observer{Acquired: func(_ context.Context, e lock.Event) {
			if grants++; e.Name == "b" && grants == 2 {
				f.take("a", "thief", time.Minute)
				time.Sleep(20 * time.Second) // in which it is told
			}
		}}))
		m := lock.All(c.Mutex("a"), c.Mutex("b"))
		l, err := m.Lock(t.Context())
		if err != nil || l.Err() != nil || grants != 4 {
			t.Fatalf("%v after %d grants: %v", l, grants, err)
		}
		_ = l.Unlock(t.Context())
		grants = 0
		_, err = m.TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrLost)
		if f.holder("b") != "" {
			t.Error("b is still held")
		}
	})
}

func TestAllFreesTheRestWhateverComesOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fa, fb := newFake(), newFake()
		a, b := newClient(t, fa, lock.WithTTL(time.Minute)), newClient(t, fb, lock.WithTTL(time.Minute))
		l := mustLock(t, lock.All(a.Mutex("a"), b.Mutex("b"), b.Mutex("c"), a.Mutex("d")))
		fb.mu.Lock()
		fb.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op != "release" {
				return nil, true
			}
			<-ctx.Done()
			return lock.ErrUncertain, false
		}
		fb.mu.Unlock()
		start := time.Now()
		time.AfterFunc(time.Second, func() {
			if fa.holder("a") != "" || fa.holder("d") != "" {
				t.Error("what can be freed has to wait for what cannot")
			}
		})
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrUncertain)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Unlock took %v", took)
		}
	})
}

func TestAllLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		l := mustLock(t, lock.All(c.Mutex("long", lock.WithTTL(time.Minute)), c.Mutex("a+b", lock.WithTTL(10*time.Second))))
		if l.Name() != `a\+b+long` || l.Owner() != "" {
			t.Errorf("name %q, owner %q", l.Name(), l.Owner())
		}
		if _, ok := l.Token(); ok {
			t.Error("a token")
		}
		ps := l.Parts()
		if len(ps) != 2 || ps[0].Name() != "a+b" || ps[1].Name() != "long" {
			t.Fatalf("parts %v", ps)
		}
		t0, _ := ps[0].Token()
		t1, _ := ps[1].Token()
		if t0 == 0 || t1 == 0 || t0 == t1 || len(ps[0].Parts()) != 1 {
			t.Errorf("tokens %d and %d", t0, t1)
		}
		if !l.Expires().Equal(ps[0].Expires()) || !l.Expires().Before(ps[1].Expires()) {
			t.Errorf("expires %v, parts %v %v", l.Expires(), ps[0].Expires(), ps[1].Expires())
		}
		before := f.count("renew")
		if err := l.Check(t.Context()); err != nil || f.count("renew") != before+2 {
			t.Errorf("Check: %v, %d renewals", err, f.count("renew")-before)
		}
		if err := l.Extend(t.Context(), 2*time.Minute); err != nil || time.Until(l.Expires()) < 119*time.Second {
			t.Errorf("Extend: %v, expires in %v", err, time.Until(l.Expires()))
		}
		wantErr(t, "Extend", l.Extend(t.Context(), time.Millisecond), lock.ErrInvalid)
		_, err := c.Mutex("long").Lock(l.Context())
		wantErr(t, "a part under the context of the whole", err, lock.ErrLocked)
		// one that somebody ends by himself ends the whole
		if err := ps[1].Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wantErr(t, "Err", l.Err(), lock.ErrReleased)
		if err := l.Unlock(t.Context()); err != nil || f.holder("a+b") != "" {
			t.Errorf("Unlock: %v", err)
		}
	})
}

func TestAllRefusesWhatCannotWork(t *testing.T) {
	c, d := newClient(t, newFake()), newClient(t, newFake())
	a, x := c.Mutex("a"), foreign{c.Mutex("x")}
	for name, m := range map[string]lock.Mutex{
		"nothing":               lock.All(),
		"nil":                   lock.All(a, nil),
		"twice":                 lock.All(a, c.Mutex("b"), c.Mutex("a", lock.WithTTL(time.Minute))),
		"twice, nested":         lock.All(a, lock.All(c.Mutex("b"), a)),
		"foreign, twice":        lock.All(x, x),
		"invalid, nested":       lock.All(a, lock.All()),
		"in a migration":        lock.All(a, lock.Migrate(a, d.Mutex("a"), lock.PhaseNew)),
		"in All in a migration": lock.All(a, lock.Migrate(lock.All(a, c.Mutex("b")), d.Mutex("a"), lock.PhaseBoth)),
		"invalid migration":     lock.All(a, lock.Migrate(nil, nil, lock.PhaseNew)),
	} {
		_, err := m.Lock(t.Context())
		wantErr(t, name, err, lock.ErrInvalid)
		_, err = m.TryLock(t.Context())
		wantErr(t, name, err, lock.ErrInvalid)
	}
	for name, m := range map[string]lock.Mutex{
		"one":                 lock.All(a),
		"of different client": lock.All(a, d.Mutex("a")),
		"foreign":             lock.All(a, foreign{c.Mutex("b")}, foreign{d.Mutex("b")}),
	} {
		if err := mustLock(t, m).Unlock(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// foreign is a Mutex that is not of this package.
type foreign struct{ lock.Mutex }

// The name tells the parts apart, whatever they are called.
func TestAllNamesAreInjective(t *testing.T) {
	c := newClient(t, newFake())
	seen := map[string]string{}
	for range 20000 {
		var names []string
		for range 1 + rand.N(3) {
			var b strings.Builder
			for range 1 + rand.N(3) {
				b.WriteByte(`a+\`[rand.N(3)])
			}
			if !slices.Contains(names, b.String()) {
				names = append(names, b.String())
			}
		}
		slices.Sort(names)
		var ms []lock.Mutex
		for _, n := range names {
			ms = append(ms, c.Mutex(n))
		}
		name := lock.All(ms...).Name()
		if parts := fmt.Sprintf("%q", names); seen[name] == "" {
			seen[name] = parts
		} else if seen[name] != parts {
			t.Fatalf("%q is the name of %s and of %s", name, seen[name], parts)
		}
	}
}

func TestAllFreesWhenAnObserverPanics(t *testing.T) {
	f := newFake()
	c := newClient(t, f, lock.WithObserver(&lock.Observer{Acquired: func(_ context.Context, e lock.Event) {
		if e.Name == "b" {
			panic("observer")
		}
	}}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = lock.All(c.Mutex("a"), c.Mutex("b")).TryLock(t.Context())
	}()
	if f.holder("a") != "" {
		t.Error("a is still held")
	}
}
