package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/redislock/redlock"
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

// locksPerStep is how many locks are held or contended during one step.
const locksPerStep = 40

// TestClockSteps steps the wall clock of one node at a time, while locks are held or contended
// and while a node restarts without its data. No lock has two holders.
//
//	LOCK_TEST_ROUNDS=1000 go test -run TestClockSteps ./redlock
func TestClockSteps(t *testing.T) {
	for _, size := range []int{3, 5} {
		for name, f := range map[string]func(*steps){"contended": (*steps).contended, "held": (*steps).held, "at boot": (*steps).atBoot} {
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
				if s.forced+s.refused == 0 {
					t.Error("no step had a result: nothing was shown")
				}
				t.Logf("%d rounds; %d steps forced; others were granted a lock after its loss %d times, and refused %d times",
					s.step*locksPerStep, s.forced, s.granted, s.refused)
			})
		}
	}
}

type steps struct {
	*testing.T
	set    *set
	clocks []*provision.Clock
	step   int

	forced int // steps of contended that came to their end in time

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

// contended makes a step of contend that comes to its end in time. On a machine that is busy a
// node may answer too late.
func (s *steps) contended() {
	const tries = 5
	for range tries {
		if s.contend() {
			s.forced++
			return
		}
		s.step++ // other names
	}
	s.Errorf("none of %d steps came to its end in time: nothing was shown", tries)
}

// contend steps the clock of one node back by less than what costs its vote, between a grant
// and its yield. It reports whether all came in time. The nodes are: one whose clock is stepped, the near ones, which with it are a
// majority, and the far ones. The first client has the near nodes. The second has the one
// whose clock is stepped, and yields it to the first, which holds then. If the second counted
// it on, it would hold with the far nodes, which answer it last.
func (s *steps) contend() bool {
	params := maps.Clone(steady)
	params["node_timeout"], params["pool_size"] = "1500ms", "96"
	order := rand.Perm(len(s.clocks))
	majority := len(order)/2 + 1
	stepped, near, far := order[0], order[1:majority], order[majority:]
	first, toFirst := s.set.clientWith(params, lock.WithTTL(steadyTTL))
	second, toSecond := s.set.clientWith(params, lock.WithTTL(steadyTTL))
	heal := func(l links, nodes ...int) {
		for _, n := range nodes {
			if err := l.proxies[n].Heal(); err != nil {
				s.Error(err)
			}
		}
	}
	toFirst.proxies[stepped].Stall()
	for _, n := range far {
		toFirst.proxies[n].Stall()
		toSecond.proxies[n].Stall()
	}
	var insides sync.Map
	var late atomic.Pointer[error] // of a Lock
	turn := func(c *lock.Client, granted *sync.WaitGroup, release <-chan struct{}, all *sync.WaitGroup) {
		for i := range locksPerStep {
			name := s.name(i)
			in, _ := insides.LoadOrStore(name, &inside{t: s.T})
			granted.Add(1)
			all.Go(func() {
				ctx, cancel := context.WithTimeout(s.Context(), timeout)
				defer cancel()
				l, err := c.Mutex(name).Lock(ctx)
				granted.Done()
				if err != nil {
					late.Store(&err)
					return
				}
				in.(*inside).enter(l)
				<-release
				if err := l.Unlock(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
					s.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	var held, granted, all sync.WaitGroup
	release := make(chan struct{})
	turn(first, &held, release, &all)
	inTime := s.heldSoon("the first client has the near nodes", near)
	turn(second, &granted, release, &all)
	inTime = inTime && s.heldSoon("the second client has the other node", order[:1])
	s.to(stepped, -900*time.Millisecond)
	heal(toFirst, stepped)
	held.Wait()
	heal(toSecond, far...)
	inTime = inTime && s.heldSoon("the far nodes are held", far)
	time.Sleep(50 * time.Millisecond) // the answers arrive
	close(release)
	heal(toFirst, far...)
	all.Wait()
	s.to(stepped, 0)
	_ = first.Close(s.Context())
	_ = second.Close(s.Context())
	if err := late.Load(); err != nil {
		s.Logf("step %d: too late: %v", s.step, *err)
		return false
	}
	return inTime
}

// heldSoon waits until all locks of this step are held at the nodes, and reports whether they are. A node refuses a
// request that arrives too late, on a machine that is busy.
func (s *steps) heldSoon(what string, nodes []int) bool {
	err := s.heldAt(nodes)
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); err = s.heldAt(nodes) {
		time.Sleep(5 * time.Millisecond) // between two looks at the nodes
	}
	if err != nil {
		s.Logf("step %d: too late: %s: %v", s.step, what, err)
	}
	return err == nil
}

// heldAt returns an error unless all locks of this step are held at the nodes.
func (s *steps) heldAt(nodes []int) error {
	for _, n := range nodes {
		for i := range locksPerStep {
			if err := s.set.admins[n].Get(s.Context(), redlock.Key(redlock.DefaultPrefix, s.name(i))).Err(); err != nil {
				return fmt.Errorf("%s at node %d: %w", s.name(i), n, err)
			}
		}
	}
	return nil
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
	params["node_timeout"] = "1s" // of a node that is busy; one that is cut off refuses at once
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
		l, err := fresh.Mutex("probe").TryLock(s.Context())
		if err != nil {
			return err
		}
		defer func() { _ = l.Unlock(s.Context()) }()
		for end := time.Now().Add(50 * time.Millisecond); ; time.Sleep(time.Millisecond) { // its answer may come last
			if err = s.set.admins[node].Get(s.Context(), "lock:probe").Err(); err == nil || time.Now().After(end) {
				return err
			}
		}
	})
	_ = fresh.Close(s.Context())
}
