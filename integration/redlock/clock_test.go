package redlock_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// clockRounds returns how many rounds each test of TestClockSteps makes. A round is one lock
// during one step.
func clockRounds(t *testing.T) int {
	n := 80
	if s := os.Getenv("LOCK_TEST_ROUNDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// locksPerStep is how many locks are held during one step.
const locksPerStep = 40

// TestClockSteps steps the wall clock of one node at a time, while locks are held and
// while a node restarts without its data. No lock has two holders.
//
//	LOCK_TEST_ROUNDS=1000 go test -run TestClockSteps ./redlock
func TestClockSteps(t *testing.T) {
	for _, size := range []int{3, 5} {
		for name, f := range map[string]func(*steps){"held": (*steps).held, "at boot": (*steps).atBoot} {
			t.Run(fmt.Sprintf("%d nodes, %s", size, name), func(t *testing.T) {
				t.Parallel() // mostly it waits
				s := &steps{T: t}
				s.set, s.clocks = newSetWithClocks(t, size)
				for range (clockRounds(t) + locksPerStep - 1) / locksPerStep {
					s.step++
					f(s)
					if t.Failed() {
						return
					}
				}
				if s.granted+s.refused == 0 {
					t.Error("no step had a result: nothing was shown")
				}
				t.Logf("%d rounds; others were granted a lock after its loss %d times, and refused %d times",
					s.step*locksPerStep, s.granted, s.refused)
			})
		}
	}
}

type steps struct {
	*testing.T
	set    *set
	clocks []*provision.Clock
	step   int

	mu               sync.Mutex
	granted, refused int
}

// locks calls f for each lock of this step in parallel.
func (s *steps) locks(f func(name string)) {
	var all sync.WaitGroup
	for i := range locksPerStep {
		all.Go(func() { f(s.name(i)) })
	}
	all.Wait()
}

// to makes the clock of a node wrong by off.
func (s *steps) to(node int, off time.Duration) {
	s.Helper()
	if err := s.clocks[node].Step(off); err != nil {
		s.Fatal(err)
	}
}

func (s *steps) name(i int) string { return fmt.Sprintf("k%d.%d", s.step, i) }

// held steps the clock of one node by an hour and back. A client holds the locks at that node
// and no more than a majority. A client that was open before and one that opens after the
// step ask for them.
func (s *steps) held() {
	s.hold(func(node int) {
		s.to(node, hourEitherWay())
	}, func(node int) {
		s.to(node, 0)
	})
}

// atBoot restarts one node of those without its data. Its clock is an hour wrong until it is
// set right.
func (s *steps) atBoot() {
	s.hold(func(node int) {
		if err := s.set.servers[node].Kill(); err != nil {
			s.Fatal(err)
		}
		s.to(node, hourEitherWay())
		if err := s.set.servers[node].Restart(s.Context()); err != nil {
			s.Fatal(err)
		}
	}, func(node int) {
		s.to(node, 0)
	})
}

func hourEitherWay() time.Duration {
	if rand.IntN(2) == 0 {
		return -time.Hour
	}
	return time.Hour
}

// hold takes the locks at a bare majority. Other clients ask for them after each of the steps.
func (s *steps) hold(steps ...func(node int)) {
	params := maps.Clone(steady)
	params["node_timeout"] = "2s" // of a node that is busy; one that is cut off refuses at once
	other, _ := s.set.clientWith(params, lock.WithTTL(steadyTTL))
	holder, links := s.set.clientWith(params, lock.WithTTL(steadyTTL))
	order := rand.Perm(len(s.clocks))
	node := order[0]
	for _, n := range order[len(order)/2+1:] {
		links.proxies[n].Cut()
	}
	insides := sync.Map{}
	s.locks(func(name string) {
		in := &inside{t: s.T}
		insides.Store(name, in)
		l, err := holder.Mutex(name).Lock(s.Context())
		if err != nil {
			s.Errorf("%s: at a majority: %v", name, err)
			return
		}
		in.enter(l)
	})
	clients := []*lock.Client{other}
	for _, step := range steps {
		step(node)
		opened, _ := s.set.clientWith(params, lock.WithTTL(steadyTTL))
		clients = append(clients, opened)
		s.locks(func(name string) {
			in, _ := insides.Load(name)
			for _, c := range clients {
				l, err := c.Mutex(name).TryLock(s.Context())
				s.mu.Lock()
				if err != nil {
					s.refused++
				} else {
					s.granted++
				}
				s.mu.Unlock()
				if err == nil {
					in.(*inside).enter(l)
				}
			}
		})
	}
	_ = holder.Close(s.Context())
	for _, c := range clients {
		_ = c.Close(s.Context())
	}
	fresh, _ := s.set.clientWith(params, lock.WithTTL(steadyTTL))
	s.set.eventually(s.T, timeout, "the node votes again", func() error {
		l, err := fresh.Mutex("probe").TryLock(s.Context()) // by which it counts
		if err != nil {
			return err
		}
		_ = l.Unlock(s.Context())
		return s.set.quarantined(s.T, node)
	})
	_ = fresh.Close(s.Context())
}
