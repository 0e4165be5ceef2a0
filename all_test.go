package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/work"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/migrate"
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
			"migrate": {migrate.New(c1.Mutex("x"), c2.Mutex("x"), migrate.PhaseBoth), c1.Mutex("w"), c1.Mutex("y")},
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
	for _, phases := range [][]migrate.Phase{{migrate.PhaseOld, migrate.PhaseBoth}, {migrate.PhaseBoth, migrate.PhaseNew}} {
		synctest.Test(t, func(t *testing.T) {
			dwell := lock.WithObserver(&lock.Observer{Acquired: func(context.Context, lock.Event) { time.Sleep(time.Second) }})
			old, new := newClient(t, memlock.NewSpace().Backend(), dwell), newClient(t, memlock.NewSpace().Backend(), dwell)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a deadlock ends with it
			defer cancel()
			var all sync.WaitGroup
			for _, p := range phases {
				m := lock.All(
					migrate.New(old.Mutex("a"), new.Mutex("z"), p),
					migrate.New(old.Mutex("b"), new.Mutex("c"), p),
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
		const want = `lock "a+b+c": lock "b" on fake: locked by "stranger", token 1, 1h0m0s left`
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
		"in a migration":        lock.All(a, migrate.New(a, d.Mutex("a"), migrate.PhaseNew)),
		"in All in a migration": lock.All(a, migrate.New(lock.All(a, c.Mutex("b")), d.Mutex("a"), migrate.PhaseBoth)),
		"invalid migration":     lock.All(a, migrate.New(nil, nil, migrate.PhaseNew)),
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

// The name distinguishes the parts, whatever their names are.
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

// InOrder locks the parts in the given order, under the given name.
func TestInOrder(t *testing.T) {
	inOrder := func(name string, parts ...lock.Mutex) (lock.Mutex, error) {
		return lock.All(parts...).(interface {
			InOrder(name string) (lock.Mutex, error)
		}).InOrder(name)
	}
	j := &journal{}
	c := newClient(t, newFake(), j.observer())
	m, err := inOrder("both", c.Mutex("z"), c.Mutex("a"))
	if err != nil {
		t.Fatal(err)
	}
	l := mustLock(t, m)
	var parts []string
	for _, p := range l.Parts() {
		parts = append(parts, p.Name())
	}
	if l.Name() != "both" || !slices.Equal(parts, []string{"z", "a"}) {
		t.Errorf("lease %q of %q", l.Name(), parts)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := j.text(), "+z +a -a -z"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for name, parts := range map[string][]lock.Mutex{
		"none": nil, "nil": {nil}, "twice": {c.Mutex("a"), c.Mutex("a")}, "twice, nested": {lock.All(c.Mutex("a"), c.Mutex("b")), c.Mutex("a")},
	} {
		_, err := inOrder("x", parts...)
		wantErr(t, name, err, lock.ErrInvalid)
	}
}

// The context of work.WithLease has the values of the lease's context. It ends with the lease
// and with the caller's context, with the cause of either.
func TestWithLease(t *testing.T) {
	type key struct{}
	why := errors.New("shutting down")
	for name, c := range map[string]struct {
		end  func(f *fake, l *lock.Lease, cancel context.CancelCauseFunc)
		want error
	}{
		"lost":     {func(f *fake, _ *lock.Lease, _ context.CancelCauseFunc) { f.take("k", "other", time.Hour) }, lock.ErrLost},
		"unlocked": {func(_ *fake, l *lock.Lease, _ context.CancelCauseFunc) { _ = l.Unlock(context.Background()) }, lock.ErrReleased},
		"caller":   {func(_ *fake, _ *lock.Lease, cancel context.CancelCauseFunc) { cancel(why) }, why},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			l, err := newClient(t, f).Mutex("k").TryLock(context.WithValue(t.Context(), key{}, "value"))
			if err != nil {
				t.Fatal(err)
			}
			caller, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ctx, end := work.WithLease(caller, l)
			defer end()
			if ctx.Err() != nil || ctx.Value(key{}) != "value" {
				t.Errorf("%s: %v, value %v", name, ctx.Err(), ctx.Value(key{}))
			}
			c.end(f, l, cancel)
			<-ctx.Done()
			wantErr(t, name, context.Cause(ctx), c.want)
		})
	}
}

// RestartMinHold makes the minimum hold count again, but not from a nested lease.
func TestRestartMinHold(t *testing.T) {
	for name, want := range map[string]time.Duration{"lease": 90 * time.Second, "nested": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			m := newClient(t, f, lock.WithMinHold(time.Minute), lock.WithReentry()).Mutex("k")
			l, start := mustLock(t, m), time.Now()
			restarted := l
			if name == "nested" {
				nested, err := m.Lock(l.Context())
				if err != nil {
					t.Fatal(err)
				}
				restarted = nested
			}
			time.Sleep(30 * time.Second)
			work.RestartMinHold(restarted.Context())
			if restarted != l {
				_ = restarted.Unlock(t.Context())
			}
			_ = l.Unlock(t.Context())
			for f.holder("k") != "" {
				time.Sleep(100 * time.Millisecond)
			}
			if held := time.Since(start); held < want || held > want+time.Second {
				t.Errorf("%s: held for %v, want %v", name, held, want)
			}
		})
	}
}
