package lock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// fleet explores every order in which processes, each of one phase, can take the
// steps of locking and unlocking a lock that is being migrated. A process is its
// place in its phase's list of locks: a step takes the next, and once it has all it
// holds; then it frees them again. The list comes from the leases that Migrate gives.
type fleet struct {
	takes  [][]string // by process, in order
	seen   map[string]bool
	both   []string // a history that ends with two holders
	stuck  []string // a history after which nobody can go on
	states int
}

// explore goes through all states that can follow. at is how many locks each process
// has taken; freeing, whether it is on its way back.
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

// Every mixed fleet of up to four processes in any two neighbouring phases never has
// two holders and never comes to a standstill; of any two others it has two holders,
// which shows that the search would find them.
func TestMigrateMixedFleets(t *testing.T) {
	phases := []lock.Phase{lock.PhaseOld, lock.PhaseBoth, lock.PhaseNew}
	takes := map[lock.Phase][]string{}
	for _, p := range phases {
		j := &journal{}
		old, new := newClient(t, newFake(), j.observer()), newClient(t, newFake(), j.observer())
		m := lock.Migrate(old.Mutex("old"), new.Mutex("new"), p)
		l := mustLock(t, m)
		for _, part := range l.Parts() {
			takes[p] = append(takes[p], part.Name())
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "" // what was really taken and freed, in which order, is what the search goes by
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
	if got := fmt.Sprint(takes[lock.PhaseOld], takes[lock.PhaseBoth], takes[lock.PhaseNew]); got != "[old] [old new] [new]" {
		t.Errorf("the phases take %s", got)
	}
	for _, p := range phases {
		for _, q := range phases {
			for mix := range 1 << 4 { // which of four processes are of q
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
					t.Errorf("%v and %v, mix %04b: nobody can go on after %v", p, q, mix, f.stuck)
				}
			}
		}
	}
}

// The same with the code itself: processes of two phases that come and go.
func TestMigrateFleetsThatRun(t *testing.T) {
	run := func(t *testing.T, phases ...lock.Phase) (most, turns int) {
		synctest.Test(t, func(t *testing.T) {
			fo, fn := newFake(), newFake()
			var mu sync.Mutex
			var all sync.WaitGroup
			inside := 0
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a deadlock ends with it
			defer cancel()
			for i := range 6 {
				old, new := newClient(t, fo), newClient(t, fn)
				m := lock.Migrate(old.Mutex("k"), new.Mutex("k"), phases[i%len(phases)])
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
	for _, pair := range [][]lock.Phase{
		{lock.PhaseOld, lock.PhaseOld}, {lock.PhaseOld, lock.PhaseBoth}, {lock.PhaseBoth, lock.PhaseBoth},
		{lock.PhaseBoth, lock.PhaseNew}, {lock.PhaseNew, lock.PhaseNew},
	} {
		if most, turns := run(t, pair...); most != 1 || turns != 30 {
			t.Errorf("%v: %d inside at most, %d turns", pair, most, turns)
		}
	}
	if most, _ := run(t, lock.PhaseOld, lock.PhaseNew); most < 2 {
		t.Error("old and new do not show two holders, so the others show nothing")
	}
}

func TestMigrateEndsWithEither(t *testing.T) {
	for _, lost := range []string{"old", "new"} {
		synctest.Test(t, func(t *testing.T) {
			fs := map[string]*fake{"old": newFake(), "new": newFake()}
			old, new := newClient(t, fs["old"]), newClient(t, fs["new"])
			l := mustLock(t, lock.Migrate(old.Mutex("k"), new.Mutex("k"), lock.PhaseBoth))
			if _, ok := l.Token(); ok || len(l.Parts()) != 2 || l.Name() != "k" {
				t.Errorf("lease %q of %d parts", l.Name(), len(l.Parts()))
			}
			fs[lost].take("k", "thief", time.Hour)
			<-l.Done()
			wantErr(t, "Err", l.Err(), lock.ErrLost)
			wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrLost)
			for name, f := range fs {
				if h := f.holder("k"); h != "" && h != "thief" {
					t.Errorf("the loss of %s left %s held", lost, name)
				}
			}
		})
	}
}

func TestMigrateRefusesWhatCannotWork(t *testing.T) {
	c, d := newClient(t, newFake()), newClient(t, newFake())
	for name, m := range map[string]lock.Mutex{
		"no phase":               lock.Migrate(c.Mutex("k"), d.Mutex("k"), 0),
		"unknown phase":          lock.Migrate(c.Mutex("k"), d.Mutex("k"), 4),
		"no old":                 lock.Migrate(nil, d.Mutex("k"), lock.PhaseNew),
		"no new":                 lock.Migrate(c.Mutex("k"), nil, lock.PhaseOld),
		"the same":               lock.Migrate(c.Mutex("k"), c.Mutex("k"), lock.PhaseOld),
		"overlap in a migration": lock.Migrate(lock.All(lock.Migrate(c.Mutex("k"), c.Mutex("l"), lock.PhaseBoth), c.Mutex("m")), c.Mutex("l"), lock.PhaseBoth),
		"overlap":                lock.Migrate(c.Mutex("k"), lock.All(d.Mutex("x"), c.Mutex("k")), lock.PhaseOld),
	} {
		_, err := m.Lock(t.Context())
		wantErr(t, name, err, lock.ErrInvalid)
		_, err = m.TryLock(t.Context())
		wantErr(t, name, err, lock.ErrInvalid)
		_, err = lock.Leader(t.Context(), m)
		wantErr(t, name, err, lock.ErrInvalid)
		_ = m.Name()
	}
	for _, phase := range []lock.Phase{lock.PhaseOld, lock.PhaseBoth, lock.PhaseNew} {
		m := lock.Migrate(c.Mutex("was"), c.Mutex("is"), phase) // another name, the same service
		if err := mustLock(t, m).Unlock(t.Context()); err != nil || m.Name() != "is" {
			t.Errorf("%v: %q, %v", phase, m.Name(), err)
		}
	}
}

func TestPhaseText(t *testing.T) {
	var v struct{ A, B, C lock.Phase }
	const text = `{"A":"old","B":"both","C":"new"}`
	if err := json.Unmarshal([]byte(text), &v); err != nil || v.A != lock.PhaseOld || v.B != lock.PhaseBoth || v.C != lock.PhaseNew {
		t.Fatalf("%+v, %v", v, err)
	}
	if out, err := json.Marshal(v); err != nil || string(out) != text {
		t.Fatalf("%s, %v", out, err)
	}
	wantErr(t, "unknown word", json.Unmarshal([]byte(`{"A":"later"}`), &v), lock.ErrInvalid)
	if _, err := lock.Phase(0).MarshalText(); !errors.Is(err, backend.ErrInvalid) || lock.Phase(7).String() != "Phase(7)" {
		t.Error(err)
	}
}
