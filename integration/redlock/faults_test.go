package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

const (
	timeout = 60 * time.Second
	ttl     = 2 * time.Second
)

// volatile are the parameters for nodes that lose their data in a restart.
var volatile = map[string]string{"restart_delay": "3s", "dial_timeout": "1s", "read_timeout": "1s"}

// steady are the parameters for leases that must survive a pause of the machine. They have
// steadyTTL.
var steady = map[string]string{"restart_delay": "6s", "dial_timeout": "1s"}

const steadyTTL = 6 * time.Second

// client opens a client with its own proxies.
func (s *set) client(opts ...lock.Option) (*lock.Client, links) {
	s.t.Helper()
	return s.clientWith(volatile, opts...)
}

func (s *set) clientWith(params map[string]string, opts ...lock.Option) (*lock.Client, links) {
	s.t.Helper()
	l := s.links()
	params = maps.Clone(params)
	params["set"] = setName
	c, err := lock.Open(s.t.Context(), suite.WithParams(urlOf(l.proxies), params), append([]lock.Option{lock.WithTTL(ttl)}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, l
}

// inside checks that no former holder trusts its lease at a grant, and that tokens rise.
type inside struct {
	t      *testing.T
	mu     sync.Mutex
	last   *lock.Lease
	token  uint64
	cycles atomic.Int64
	lost   atomic.Int64
}

func (in *inside) enter(l *lock.Lease) {
	in.mu.Lock()
	defer in.mu.Unlock()
	token, _ := l.Token()
	if token <= in.token {
		in.t.Errorf("token %d after %d", token, in.token)
	}
	if l.Err() != nil {
		return // this one is no holder any more
	}
	if in.last != nil && in.last.Err() == nil {
		in.t.Errorf("two holders: that with token %d trusts its lease while that with token %d is granted it", in.token, token)
	}
	in.last, in.token = l, token
}

// work locks and unlocks until ctx ends.
func (in *inside) work(ctx context.Context, m lock.Mutex) {
	for ctx.Err() == nil {
		l, err := m.Lock(ctx)
		if err != nil {
			if ctx.Err() == nil {
				in.t.Errorf("lock: %v", err)
			}
			continue
		}
		in.enter(l)
		select { // some hold through a fault and renew
		case <-time.After(time.Duration(rand.IntN(4)) * time.Millisecond):
		case <-l.Done():
		}
		if err := l.Unlock(context.WithoutCancel(ctx)); errors.Is(err, lock.ErrLost) {
			in.lost.Add(1)
		} else if err != nil {
			in.t.Errorf("unlock: %v", err)
		}
		in.cycles.Add(1)
	}
}

// progress waits for n more cycles.
func (in *inside) progress(what string, n int64) {
	in.t.Helper()
	start, want := time.Now(), in.cycles.Load()+n
	for in.cycles.Load() < want {
		if time.Since(start) > timeout {
			in.t.Fatalf("%s: %d cycles short after %v", what, want-in.cycles.Load(), timeout)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
	in.t.Logf("%s: %d cycles in %v", what, n, time.Since(start).Round(time.Millisecond))
}

// TestMinority applies every fault to two nodes at a time while four clients contend.
func TestMinority(t *testing.T) {
	provision.LeaveOut(t, "two of five Redlock nodes at a time with each fault")
	s := newSet(t)
	ctx, cancel := context.WithCancel(t.Context())
	in := &inside{t: t}
	var all []links
	var wg sync.WaitGroup
	var logs []*records
	for range 4 {
		h := &records{}
		c, l := s.clientWith(steady, lock.WithTTL(steadyTTL), lock.WithLogger(slog.New(h)))
		all, logs = append(all, l), append(logs, h)
		for range 4 {
			wg.Go(func() { in.work(ctx, c.Mutex("contended")) })
		}
	}
	defer wg.Wait()
	defer cancel()
	in.progress("all nodes up", 50)

	proxies := func(node int, do func(*provision.Proxy)) error {
		for _, l := range all {
			do(l.proxies[node])
		}
		return nil
	}
	heal := func(node int) error {
		return proxies(node, func(p *provision.Proxy) {
			if err := p.Heal(); err != nil {
				t.Error(err)
			}
		})
	}
	restart := func(node int) error { return s.servers[node].Restart(ctx) }
	faults := []struct {
		name       string
		begin, end func(node int) error
	}{
		{"hung", func(n int) error { return s.servers[n].Pause() }, func(n int) error { return s.servers[n].Resume() }},
		{"cut off", func(n int) error { return proxies(n, (*provision.Proxy).Cut) }, heal},
		{"silent", func(n int) error { return proxies(n, (*provision.Proxy).Blackhole) }, heal},
		{"answers lost", func(n int) error { return proxies(n, (*provision.Proxy).BlackholeReplies) }, heal},
		{"slow", func(n int) error {
			return proxies(n, func(p *provision.Proxy) { p.Delay(400 * time.Millisecond) })
		}, heal},
		{"killed, and back empty", func(n int) error { return s.servers[n].Kill() }, restart},
		{"restarted empty", func(n int) error { return errors.Join(s.servers[n].Kill(), restart(n)) }, func(int) error { return nil }},
	}
	for _, f := range faults {
		nodes := rand.Perm(size)[:2]
		what := fmt.Sprintf("%s: nodes %v", f.name, nodes)
		for _, n := range nodes {
			if err := f.begin(n); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		in.progress(what, 50)
		for _, n := range nodes {
			if err := f.end(n); err != nil {
				t.Fatalf("%s, its end: %v", what, err)
			}
		}
		in.progress(what+", over", 50)
		// before the next two: all clients must see that these are back
		s.votes(t, nodes)
		for _, h := range logs {
			s.eventually(t, timeout, "every client sees every node vote", h.allVote)
		}
		in.progress(what+", and they vote again", 20)
	}
	cancel()
	wg.Wait()
	t.Logf("%d cycles, %d of them lost", in.cycles.Load(), in.lost.Load())
	if lost, all := in.lost.Load(), in.cycles.Load(); lost > all/10 {
		t.Errorf("losses: %d of %d cycles, though a majority was always there", lost, all)
	}
}

// votes waits until the quarantines of the nodes have passed, if they have one.
func (s *set) votes(t *testing.T, nodes []int) {
	t.Helper()
	for _, n := range nodes {
		s.eventually(t, timeout, fmt.Sprintf("node %d votes again", n), func() error { return s.quarantined(t, n) })
	}
}

// quarantined returns an error while a node has no vote, by its marker and the steady parameters.
func (s *set) quarantined(t *testing.T, node int) error {
	t.Helper()
	marker, err := s.admins[node].Get(t.Context(), "{lock:}:born").Result()
	if err != nil {
		return err
	}
	info, err := s.admins[node].InfoMap(t.Context(), "server").Result()
	if err != nil {
		return err
	}
	f := strings.Fields(marker) // run, set, quarantine, how much of it has passed
	if ms, err := strconv.Atoi(f[3]); err != nil || f[0] != info["Server"]["run_id"] || ms < 6060 {
		return fmt.Errorf("marker %q, run %s", marker, info["Server"]["run_id"])
	}
	return nil
}

func (s *set) eventually(t *testing.T, within time.Duration, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) { // between two looks
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
	}
}

// TestRollingRestart restarts every node without its data, one after another, under a holder
// with waiters.
func TestRollingRestart(t *testing.T) {
	provision.LeaveOut(t, "a rolling restart of Redlock nodes")
	t.Parallel() // mostly it waits
	s := newSet(t)
	holder, _ := s.clientWith(steady, lock.WithTTL(steadyTTL))
	waiter, _ := s.clientWith(steady, lock.WithTTL(steadyTTL))
	in := &inside{t: t}
	l, err := holder.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in.enter(l)
	got := make(chan error, 1)
	go func() {
		next, err := waiter.Mutex("k").Lock(t.Context())
		if err == nil {
			in.enter(next)
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	for i, server := range s.servers {
		if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, timeout, fmt.Sprintf("the holder has the vote of node %d again", i), func() error {
			if err := l.Err(); err != nil {
				t.Fatalf("the holder while node %d restarts: %v", i, err)
			}
			v, err := s.admins[i].Get(t.Context(), "lock:k").Result()
			if err == nil && !strings.HasPrefix(v, l.Owner()) {
				err = fmt.Errorf("held by %s", v)
			}
			return err
		})
	}
	select {
	case err := <-got:
		t.Fatalf("the waiter, while the lock is held: %v", err)
	default:
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(timeout):
		t.Fatal("the waiter was not served")
	}
}

// TestEmptyNodeHasNoVote: a lock is held at exactly a majority, and one of its nodes restarts
// without its data. With the vote of that node two clients could hold the lock.
func TestEmptyNodeHasNoVote(t *testing.T) {
	t.Parallel() // mostly it waits
	s := newSet(t)
	holder, l := s.clientWith(steady, lock.WithTTL(steadyTTL))
	other, _ := s.clientWith(steady, lock.WithTTL(steadyTTL))
	in := &inside{t: t}
	l.proxies[3].Cut()
	l.proxies[4].Cut()
	first, err := holder.Mutex("k").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in.enter(first)
	for _, n := range []int{0, 1, 2} {
		if v, err := s.admins[n].Get(t.Context(), "lock:k").Result(); err != nil || !strings.HasPrefix(v, first.Owner()) {
			s.eventually(t, timeout, "the vote of a node that is up", func() error {
				return s.admins[n].Get(t.Context(), "lock:k").Err()
			})
		}
	}
	if err := errors.Join(s.servers[2].Kill(), s.servers[2].Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	kept, refused := first.Err() == nil, 0
	s.eventually(t, timeout, "another gets it", func() error {
		next, err := other.Mutex("k").TryLock(t.Context())
		if err != nil {
			refused++
			return err
		}
		in.enter(next)
		return next.Unlock(t.Context())
	})
	if kept && refused == 0 { // else the restart took longer than the lease
		t.Error("another client was granted the lock at once, by the vote of an empty node")
	}
	if err := first.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the first holder: want it lost, got %v", err)
	}
}

func TestMajorityDown(t *testing.T) {
	t.Parallel() // mostly it waits
	for _, f := range []struct {
		name       string
		begin, end func(*provision.Server) error
	}{
		{"killed", (*provision.Server).Kill, func(s *provision.Server) error { return s.Restart(context.Background()) }},
		{"hung", (*provision.Server).Pause, (*provision.Server).Resume},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t)
			c, l := s.client()
			held, err := c.Mutex("held").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			down := []int{0, 2, 4}
			for _, n := range down {
				if err := f.begin(s.servers[n]); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			_, err = c.Mutex("k").TryLock(t.Context())
			if err == nil || errors.Is(err, lock.ErrLocked) {
				t.Fatalf("TryLock with a majority down: want an error, got %v", err)
			}
			for _, n := range down {
				if !strings.Contains(err.Error(), l.proxies[n].Addr()) {
					t.Errorf("want every node's error in %q, not that of %s", err, l.proxies[n].Addr())
				}
			}
			for _, n := range []int{1, 3} {
				if strings.Contains(err.Error(), l.proxies[n].Addr()) {
					t.Errorf("want no error of %s, which is up, in %q", l.proxies[n].Addr(), err)
				}
			}
			// half the TTL, and the time for the release; a generous bound
			if took := time.Since(start); took > ttl+10*time.Second {
				t.Errorf("TryLock with a majority down took %v", took)
			}
			select {
			case <-held.Done():
				if !errors.Is(held.Err(), lock.ErrLost) {
					t.Errorf("a lease with a majority down: %v", held.Err())
				}
			case <-time.After(timeout):
				t.Fatal("a lease was not lost with a majority down")
			}
			for _, n := range down {
				if err := f.end(s.servers[n]); err != nil {
					t.Fatal(err)
				}
			}
			s.eventually(t, timeout, "a lock when all are back", func() error {
				l, err := c.Mutex("k").TryLock(t.Context())
				if err == nil {
					err = l.Unlock(t.Context())
				}
				return err
			})
		})
	}
}
