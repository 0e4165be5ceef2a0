package migrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/elect"
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/migrate"
)

var (
	newClient = clienttest.NewClient
	mustLock  = clienttest.MustLock
	wantErr   = clienttest.WantErr
)

// fleet explores every order in which processes, each in one phase, can lock and unlock
// a migrated lock. A process has a list of locks, that of its phase as New takes them.
// Each step of a process locks the next of them, or, when it has held all, releases the
// last one.
type fleet struct {
	takes  [][]string // the locks of each process, in order
	seen   map[string]bool
	both   []string // a history with two holders at its end
	stuck  []string // a history after which no step is possible
	states int
}

// explore visits all states that can follow. at is how many locks each process holds;
// freeing, whether it releases them.
func (f *fleet) explore(at []int, freeing []bool, history []string) {
	key := fmt.Sprint(at, freeing)
	if f.seen[key] {
		return
	}
	f.seen[key] = true
	f.states++
	holders, taken := 0, map[string]bool{}
	for p, n := range at {
		if n == len(f.takes[p]) && !freeing[p] {
			holders++
		}
		for _, l := range f.takes[p][:n] {
			taken[l] = true
		}
	}
	if holders > 1 && f.both == nil {
		f.both = append([]string{}, history...)
	}
	steps := 0
	for p := range at {
		n := at[p]
		next, back := append([]int{}, at...), append([]bool{}, freeing...)
		what := ""
		switch {
		case freeing[p]: // last first
			next[p]--
			back[p] = next[p] > 0
			what = "frees " + f.takes[p][n-1]
		case n == len(f.takes[p]):
			next[p]--
			back[p] = next[p] > 0
			what = "frees " + f.takes[p][n-1]
		case !taken[f.takes[p][n]]:
			next[p]++
			what = "takes " + f.takes[p][n]
		default:
			continue // waits
		}
		steps++
		f.explore(next, back, append(history, fmt.Sprintf("%d %s", p, what)))
	}
	if steps == 0 && f.stuck == nil {
		f.stuck = append([]string{}, history...)
	}
}

// Four processes in any mix of two neighbouring phases never have two holders and never
// deadlock. PhaseOld with PhaseNew has two holders, so the search can find them.
func TestMixedFleets(t *testing.T) {
	phases := []migrate.Phase{migrate.PhaseOld, migrate.PhaseBoth, migrate.PhaseNew}
	takes := map[migrate.Phase][]string{}
	for _, p := range phases {
		j := &journal{}
		old, new := newClient(t, memlock.New(), j.observer()), newClient(t, memlock.New(), j.observer())
		m := migrate.New(old.Mutex("old"), new.Mutex("new"), p)
		l := mustLock(t, m)
		for _, part := range l.Parts() {
			takes[p] = append(takes[p], part.Name())
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "" // the order in which New really locks and releases
		for _, n := range takes[p] {
			want += "+" + n + " "
		}
		for i := range takes[p] {
			want += "-" + takes[p][len(takes[p])-1-i] + " "
		}
		if got := j.text() + " "; got != want {
			t.Fatalf("phase %v: %q, want %q", p, got, want)
		}
	}
	if got := fmt.Sprint(takes[migrate.PhaseOld], takes[migrate.PhaseBoth], takes[migrate.PhaseNew]); got != "[old] [old new] [new]" {
		t.Errorf("the phases take %s", got)
	}
	for _, p := range phases {
		for _, q := range phases {
			for mix := range 1 << 4 { // which of four processes are in q
				f := &fleet{seen: map[string]bool{}}
				mixed := false
				for i := range 4 {
					phase := p
					if mix>>i&1 == 1 {
						phase = q
					}
					mixed = mixed || phase != p
					f.takes = append(f.takes, takes[phase])
				}
				f.explore(make([]int, 4), make([]bool, 4), nil)
				neighbours := max(p-q, q-p) <= 1
				alone := !mixed || mix == 1<<4-1
				switch {
				case (neighbours || alone) && f.both != nil:
					t.Errorf("%v and %v, mix %04b: two holders after %v", p, q, mix, f.both)
				case !neighbours && !alone && f.both == nil:
					t.Errorf("%v and %v, mix %04b: the search finds no two holders in %d states", p, q, mix, f.states)
				case f.stuck != nil:
					t.Errorf("%v and %v, mix %04b: deadlock after %v", p, q, mix, f.stuck)
				}
			}
		}
	}
}

// The same property with the code itself: six processes in two phases.
func TestRunningFleets(t *testing.T) {
	run := func(t *testing.T, phases ...migrate.Phase) (most, turns int) {
		synctest.Test(t, func(t *testing.T) {
			so, sn := memlock.NewSpace(), memlock.NewSpace()
			var mu sync.Mutex
			var all sync.WaitGroup
			inside := 0
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a deadlock ends with it
			defer cancel()
			for i := range 6 {
				old, new := newClient(t, so.Backend()), newClient(t, sn.Backend())
				m := migrate.New(old.Mutex("k"), new.Mutex("k"), phases[i%len(phases)])
				all.Go(func() {
					for range 5 {
						err := lock.Do(ctx, m, func(context.Context) error {
							mu.Lock()
							inside++
							most, turns = max(most, inside), turns+1
							mu.Unlock()
							time.Sleep(time.Second)
							mu.Lock()
							inside--
							mu.Unlock()
							return nil
						})
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
		return most, turns
	}
	for _, pair := range [][]migrate.Phase{
		{migrate.PhaseOld, migrate.PhaseOld}, {migrate.PhaseOld, migrate.PhaseBoth}, {migrate.PhaseBoth, migrate.PhaseBoth},
		{migrate.PhaseBoth, migrate.PhaseNew}, {migrate.PhaseNew, migrate.PhaseNew},
	} {
		if most, turns := run(t, pair...); most != 1 || turns != 30 {
			t.Errorf("%v: %d inside at most, %d turns", pair, most, turns)
		}
	}
	if most, _ := run(t, migrate.PhaseOld, migrate.PhaseNew); most < 2 {
		t.Error("old and new show no two holders, so the test cannot find any")
	}
}

func TestLeaseEndsWithEitherPart(t *testing.T) {
	for _, lost := range []string{"old", "new"} {
		synctest.Test(t, func(t *testing.T) {
			c := map[string]*lock.Client{"old": newClient(t, memlock.New()), "new": newClient(t, memlock.New())}
			l := mustLock(t, migrate.New(c["old"].Mutex("k"), c["new"].Mutex("k"), migrate.PhaseBoth))
			if _, ok := l.Token(); ok || len(l.Parts()) != 2 || l.Name() != "k" {
				t.Errorf("lease %q of %d parts", l.Name(), len(l.Parts()))
			}
			if _, err := c[lost].Break(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			successor := mustLock(t, c[lost].Mutex("k"))
			<-l.Done()
			wantErr(t, "Err", l.Err(), lock.ErrLost)
			wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrLost)
			for name, c := range c {
				h, err := elect.Leader(t.Context(), c.Mutex("k"))
				if err != nil || h != nil && h.Owner != successor.Owner() {
					t.Errorf("the loss of %s left %s held by %v, %v", lost, name, h, err)
				}
			}
		})
	}
}

func TestInvalidMigrations(t *testing.T) {
	c, d := newClient(t, memlock.New()), newClient(t, memlock.New())
	for name, m := range map[string]lock.Mutex{
		"no phase":               migrate.New(c.Mutex("k"), d.Mutex("k"), 0),
		"unknown phase":          migrate.New(c.Mutex("k"), d.Mutex("k"), 4),
		"no old":                 migrate.New(nil, d.Mutex("k"), migrate.PhaseNew),
		"no new":                 migrate.New(c.Mutex("k"), nil, migrate.PhaseOld),
		"the same":               migrate.New(c.Mutex("k"), c.Mutex("k"), migrate.PhaseOld),
		"overlap in a migration": migrate.New(lock.All(migrate.New(c.Mutex("k"), c.Mutex("l"), migrate.PhaseBoth), c.Mutex("m")), c.Mutex("l"), migrate.PhaseBoth),
		"overlap":                migrate.New(c.Mutex("k"), lock.All(d.Mutex("x"), c.Mutex("k")), migrate.PhaseOld),
	} {
		_, err := m.Lock(t.Context())
		wantErr(t, name, err, lock.ErrInvalid)
		_, err = m.TryLock(t.Context())
		wantErr(t, name, err, lock.ErrInvalid)
		_, err = elect.Leader(t.Context(), m)
		wantErr(t, name, err, lock.ErrInvalid)
		_ = m.Name()
	}
	for _, phase := range []migrate.Phase{migrate.PhaseOld, migrate.PhaseBoth, migrate.PhaseNew} {
		m := migrate.New(c.Mutex("was"), c.Mutex("is"), phase) // another name, the same service
		if err := mustLock(t, m).Unlock(t.Context()); err != nil || m.Name() != "is" {
			t.Errorf("%v: %q, %v", phase, m.Name(), err)
		}
	}
}

func TestPhaseText(t *testing.T) {
	var v struct{ A, B, C migrate.Phase }
	const text = `{"A":"old","B":"both","C":"new"}`
	if err := json.Unmarshal([]byte(text), &v); err != nil || v.A != migrate.PhaseOld || v.B != migrate.PhaseBoth || v.C != migrate.PhaseNew {
		t.Fatalf("%+v, %v", v, err)
	}
	if out, err := json.Marshal(v); err != nil || string(out) != text {
		t.Fatalf("%s, %v", out, err)
	}
	wantErr(t, "unknown word", json.Unmarshal([]byte(`{"A":"later"}`), &v), lock.ErrInvalid)
	if _, err := migrate.Phase(0).MarshalText(); !errors.Is(err, backend.ErrInvalid) || migrate.Phase(7).String() != "Phase(7)" {
		t.Error(err)
	}
}

func TestLeaderInEachPhase(t *testing.T) {
	old, new := newClient(t, memlock.NewSpace().Backend()), newClient(t, memlock.NewSpace().Backend())
	for phase, want := range map[migrate.Phase]string{migrate.PhaseOld: "old", migrate.PhaseBoth: "old", migrate.PhaseNew: "new"} {
		mo, mn := old.Mutex("k", lock.WithMetadata("old")), new.Mutex("k", lock.WithMetadata("new"))
		m := migrate.New(mo, mn, phase)
		l := mustLock(t, m)
		if h, err := elect.Leader(t.Context(), m); err != nil || h == nil || h.Metadata != want {
			t.Errorf("%v: %+v, %v", phase, h, err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// journal records which locks are granted and released.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) observer() lock.Option {
	note := func(sign string) func(context.Context, lock.Event) {
		return func(_ context.Context, e lock.Event) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.lines = append(j.lines, sign+e.Name)
		}
	}
	return lock.WithObserver(&lock.Observer{Acquired: note("+"), Released: note("-")})
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}
