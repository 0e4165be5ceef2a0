//go:build !race

// The race detector of Go 1.26 crashes in long tests in virtual time.

package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// simulation is a number of clients that lock one key at fake servers, in virtual time, while requests are lost or late
// and servers restart without their data. At each grant no other client trusts one, and the token is the greatest.
type simulation struct {
	t    *testing.T
	c    cluster
	rand *rand.Rand

	mu     sync.Mutex
	holder string
	until  time.Time // when its trust ends
	token  uint64
	grants int
}

const (
	simulationTTL   = time.Second
	simulationDelay = 2 * time.Second // restart_delay
)

func (s *simulation) enter(owner string, g backend.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(g.Until()) {
		return
	}
	if s.holder != "" && time.Now().Before(s.until) {
		s.t.Errorf("%s is granted the key, which %s trusts for %v", owner, s.holder, time.Until(s.until))
	}
	if g.Token() <= s.token {
		s.t.Errorf("token %d after %d", g.Token(), s.token)
	}
	s.holder, s.until, s.token = owner, g.Until(), g.Token()
	s.grants++
}

// trusts records until when a holder trusts its grant.
func (s *simulation) trusts(owner string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == owner {
		s.until = until
	}
}

// work locks and unlocks until ctx ends.
func (s *simulation) work(ctx context.Context, r *Backend, random *rand.Rand, first int) {
	for n := first; ctx.Err() == nil; n++ {
		req := redlockRequest("k", n)
		req.TTL = simulationTTL
		acquire := r.Acquire
		if random.IntN(3) == 0 {
			acquire = r.TryAcquire
		}
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(5000))*time.Millisecond)
		g, err := acquire(limited, req)
		cancel()
		if err != nil {
			if backend.OutcomeUnknown(err) {
				s.untilDone(func(ctx context.Context) error { return r.Abandon(ctx, req) })
			}
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
			continue
		}
		s.enter(req.Owner, g)
		for range random.IntN(4) {
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			limited, cancel := context.WithTimeout(ctx, simulationTTL/4)
			err := g.Renew(limited, simulationTTL)
			cancel()
			if errors.Is(err, backend.ErrLost) || !time.Now().Before(g.Until()) {
				break
			}
			s.trusts(req.Owner, g.Until())
		}
		s.trusts(req.Owner, time.Time{})
		s.untilDone(g.Release)
	}
}

// untilDone repeats a request as package lock does.
func (s *simulation) untilDone(f func(context.Context) error) {
	for end := time.Now().Add(2 * simulationTTL); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), simulationTTL/4)
		err := f(ctx)
		cancel()
		if err == nil || errors.Is(err, backend.ErrLost) {
			return
		}
	}
}

// disturb makes one fault after another, at a minority of the servers.
func (s *simulation) disturb(ctx context.Context, members [][]*member) {
	operations := []string{"acquire", "renew", "end"}
	for ctx.Err() == nil {
		server := s.rand.IntN(len(s.c.servers))
		if s.rand.IntN(4) == 0 {
			s.c.servers[server].restart(s.rand.IntN(2) == 0)
			time.Sleep(simulationTTL + 2*simulationDelay) // no second one before its quarantine has passed
			continue
		}
		m := members[s.rand.IntN(len(members))][server]
		op, f := operations[s.rand.IntN(len(operations))], fault(1+s.rand.IntN(4))
		m.set(op, f)
		m.slow(time.Duration(s.rand.IntN(20)) * time.Millisecond)
		time.Sleep(time.Duration(s.rand.IntN(400)) * time.Millisecond)
		if s.rand.IntN(3) > 0 {
			m.set(op, none)
		}
	}
	for _, ms := range members {
		for _, m := range ms {
			for _, op := range operations {
				m.set(op, none)
			}
		}
	}
}

// TestRedlockSimulation runs simulations of a minute. LOCK_TEST_SIMULATIONS is their number.
func TestRedlockSimulation(t *testing.T) {
	n := 40
	if text := os.Getenv("LOCK_TEST_SIMULATIONS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LOCK_TEST_SIMULATIONS: %v", err)
		}
	}
	grants := 0
	for seed := range uint64(n) {
		virtual(t, 3+2*int(seed%2), func(t *testing.T, c cluster) {
			lateBy.Store(int64(700 * time.Millisecond))
			defer lateBy.Store(int64(time.Minute))
			s := &simulation{t: t, c: c, rand: rand.New(rand.NewPCG(seed, 1))}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var members [][]*member
			var all sync.WaitGroup
			for i := range 3 {
				r, ms := c.open(WithRestartDelay(simulationDelay), WithNodeTimeout(50*time.Millisecond))
				members = append(members, ms)
				for k := range 2 {
					all.Go(func() { s.work(ctx, r, rand.New(rand.NewPCG(seed, uint64(10*i+k))), 1_000_000*(2*i+k)+1) })
				}
			}
			s.disturb(ctx, members)
			all.Wait()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n := c.votesFor("k", ""); n != len(c.servers) {
				t.Errorf("in the end the key is free at %d of %d nodes", n, len(c.servers))
			}
			grants += s.grants
		})
		if t.Failed() {
			t.Fatalf("simulation %d", seed)
		}
	}
	t.Logf("%d grants in %d simulations", grants, n)
	if grants < 20*n {
		t.Errorf("%d grants in %d simulations of a minute: too little was shown", grants, n)
	}
}
