package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

func TestEnsembleLeaderKilledAndRollingRestart(t *testing.T) {
	for _, flavour := range provision.ZooKeeperFlavours() {
		t.Run(flavour, func(t *testing.T) { rolling(t, provision.ZooKeeperEnsemble(t, flavour, 3)) })
	}
}

func rolling(t *testing.T, e *provision.Ensemble) {
	url := "zk://" + strings.Join(e.Addrs(), ",")
	const key = "rolling"
	check := &exclusionCheck{t: t}
	var clients []*lock.Client
	for range 6 {
		clients = append(clients, client(t, url, 4*time.Second))
	}
	stop := takeTurns(t, check, clients, key)
	progress(t, check, 50, "grants before")

	leader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Nodes[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	progress(t, check, 20, "grants after the leader was killed")
	if err := e.Nodes[leader].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range e.Nodes {
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		progress(t, check, 10, fmt.Sprintf("grants after the restart of server %d", i))
	}
	stop()
	nothingLeft(t, e.Addrs(), key)
	t.Logf("%d grants", check.grants())
}

// TestEnsembleMinorityWithHolder cuts the holder's server off from the others, as a follower
// and as the leader. It goes on answering pings and reads for some time, of which the
// majority does not learn.
func TestEnsembleMinorityWithHolder(t *testing.T) {
	e := provision.ZooKeeperEnsembleApart(t, 3)
	for _, leads := range []bool{false, true} {
		for _, how := range []string{"cut", "blackhole"} {
			t.Run(fmt.Sprintf("leader=%v/%s", leads, how), func(t *testing.T) { testMinorityWithHolder(t, e, leads, how) })
		}
	}
}

func testMinorityWithHolder(t *testing.T, e *provision.Ensemble, leads bool, how string) {
	if err := e.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	minority, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !leads {
		minority = (minority + 1) % 3
	}
	var majority []string
	for i, s := range e.Nodes {
		if i != minority {
			majority = append(majority, s.Addr())
		}
	}
	const ttl = time.Second // less than the time for which a server that is cut off goes on
	holder := client(t, "zk://"+e.Nodes[minority].Addr(), ttl)
	next := client(t, "zk://"+strings.Join(majority, ","), 30*time.Second) // longer than a slow election
	key, l, got := holdAndWait(t, holder, next, fmt.Sprint("minority ", how, leads))
	cut := time.Now()
	if how == "cut" {
		e.CutOff(minority)
	} else {
		e.Blackhole(minority)
	}
	<-l.Done()
	lost := time.Now()
	r := <-got
	if err := e.Rejoin(minority); err != nil {
		t.Error(err)
	}
	if r.err != nil {
		t.Fatalf("the waiter at the majority: %v", r.err)
	}
	t.Logf("lost %v after the cut, the next granted %v after that", lost.Sub(cut).Round(time.Millisecond), r.at.Sub(lost).Round(time.Millisecond))
	if err := r.l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := e.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, majority, key)
}

// grantedAt is the result of a Lock and when it returned.
type grantedAt struct {
	l   *lock.Lease
	err error
	at  time.Time
}

// holdAndWait locks a key with one client while another one waits for it. It tries again,
// with another key, if the short lease is lost before: something then paused for that long.
func holdAndWait(t *testing.T, holder, next *lock.Client, name string) (key string, l *lock.Lease, got chan grantedAt) {
	for try := 1; ; try++ {
		key, got = fmt.Sprint(name, try), make(chan grantedAt, 1)
		check := &exclusionCheck{t: t}
		held, err := holder.Mutex(key).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		check.enter("the holder", held)
		go func() {
			n, err := next.Mutex(key).Lock(t.Context())
			at := time.Now()
			check.leaveIfEnded("the holder", held)
			if err == nil {
				check.enter("the next", n)
			}
			got <- grantedAt{n, err, at}
		}()
		eventually(t, 10*time.Second, "a waiter", func() error {
			info, err := next.Inspect(t.Context(), key)
			if err == nil && len(info.Waiters) == 0 && held.Err() == nil {
				err = errors.New("no waiter")
			}
			return err
		})
		if err = held.Check(t.Context()); err == nil {
			return key, held, got
		}
		if !errors.Is(err, lock.ErrLost) || try == 3 {
			t.Fatal(err)
		}
		t.Logf("lost before the cut: %v", err)
		if r := <-got; r.err != nil {
			t.Fatal(r.err)
		} else if err := r.l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEnsembleFollowerBehind tries at a server that receives changes late: a released lock
// is free there too, also for a client that was just refused.
func TestEnsembleFollowerBehind(t *testing.T) {
	e := provision.ZooKeeperEnsembleApart(t, 3)
	leader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	behind := (leader + 1) % 3
	const key, ttl = "behind", 10 * time.Second
	holder, other := client(t, "zk://"+e.Nodes[leader].Addr(), ttl), client(t, "zk://"+e.Nodes[behind].Addr(), ttl)
	l, err := holder.Mutex(key).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.Lag(behind, 250*time.Millisecond)
	if _, err := other.Mutex(key).TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Fatalf("TryLock of a held key: want ErrLocked, got %v", err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := other.Mutex(key).TryLock(t.Context())
	if err != nil {
		t.Fatalf("TryLock after the release: %v", err)
	}
	if err := errors.Join(e.Rejoin(behind), next.Unlock(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestEnsembleSessionMoves kills each server in turn: the sessions of the holder and the
// waiters move to other servers, and the order of the queue stays.
func TestEnsembleSessionMoves(t *testing.T) {
	e := provision.ZooKeeperEnsemble(t, provision.ZooKeeper38, 3)
	url := "zk://" + strings.Join(e.Addrs(), ",")
	const key, ttl = "moves", 30 * time.Second // longer than a slow election
	c := client(t, url, ttl)
	l, err := c.Mutex(key).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check := &exclusionCheck{t: t}
	check.enter("the holder", l)
	const n = 9
	var wg sync.WaitGroup
	var want []string
	for i := range n {
		name := fmt.Sprint("waiter ", i)
		want = append(want, name)
		waits := make(chan struct{})
		w, err := lock.Open(t.Context(), url, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
			Waiting: func(context.Context, lock.Event) { close(waits) },
		}))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer w.Close(context.Background())
			l, err := w.Mutex(key).Lock(t.Context())
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			check.enter(name, l)
			token, _ := l.Token()
			check.leave(name, token)
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		<-waits
	}
	for i, s := range e.Nodes {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, ttl, fmt.Sprintf("a check while server %d is down", i), func() error { return l.Check(t.Context()) })
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, ttl, "a check when it is back", func() error { return l.Check(t.Context()) })
	}
	token, _ := l.Token()
	check.leave("the holder", token)
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if got := check.order[1:]; !slices.Equal(got, want) {
		t.Errorf("order of service: %q", got)
	}
	nothingLeft(t, e.Addrs(), key)
}
