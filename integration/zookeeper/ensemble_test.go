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

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/zklock"
)

// watchdog holds the library to its promise: from one grant to the end of its
// trust nobody else is granted, and tokens rise.
type watchdog struct {
	t  *testing.T
	mu sync.Mutex

	holder string
	token  uint64
	count  int
	order  []string
}

// enter is called with a fresh lease, and leave before its unlock or after its end.
func (w *watchdog) enter(who string, l *lock.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token, _ := l.Token()
	if token <= w.token {
		w.t.Errorf("%s: token %d after %d", who, token, w.token)
	}
	if w.holder != "" {
		w.t.Errorf("%s was granted token %d while %s trusted its lock, token %d", who, token, w.holder, w.token)
	}
	w.token, w.holder = token, who
	w.count++
	w.order = append(w.order, who)
	// A trust that ends by itself ends before anybody else can be told.
	context.AfterFunc(l.Context(), func() { w.leave(who, token) })
}

func (w *watchdog) leave(who string, token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder == who && w.token == token {
		w.holder = ""
	}
}

func (w *watchdog) grants() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// trusts tells whether the lease is still trusted, and takes it out of the
// watchdog's books if it is not: the end of the trust is an instant, not the time
// at which a goroutine is told of it.
func (w *watchdog) expired(who string, l *lock.Lease) {
	if l.Err() != nil {
		token, _ := l.Token()
		w.leave(who, token)
	}
}

func client(t *testing.T, url string, ttl time.Duration) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url, lock.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func eventually(t *testing.T, d time.Duration, what string, cond func() error) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, d, err)
		}
		time.Sleep(10 * time.Millisecond) // between two looks at a condition
	}
}

// churn lets clients of every server take turns until stop is called, and fails
// the test on any violation.
func churn(t *testing.T, dog *watchdog, clients []*lock.Client, key string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i, c := range clients {
		who := fmt.Sprintf("client %d", i)
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Mutex(key).Lock(ctx)
				if err != nil {
					continue // the service was out of reach; what counts is what is granted
				}
				dog.enter(who, l)
				select {
				case <-time.After(5 * time.Millisecond): // the work
				case <-l.Done():
				}
				token, _ := l.Token()
				dog.leave(who, token)
				_ = l.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func progress(t *testing.T, dog *watchdog, more int, what string) {
	t.Helper()
	want := dog.grants() + more
	eventually(t, 30*time.Second, what, func() error {
		if n := dog.grants(); n < want {
			return fmt.Errorf("%d grants short", want-n)
		}
		return nil
	})
}

// nothingLeft checks that no node of any lock remains.
func nothingLeft(t *testing.T, addrs []string, key string) {
	t.Helper()
	conn := admin(t, addrs)
	eventually(t, 15*time.Second, "nodes of "+key, func() error {
		if _, err := conn.Sync("/"); err != nil {
			return err
		}
		nodes, _, err := conn.Children(node(key))
		switch {
		case errors.Is(err, zk.ErrNoNode): // the server has tidied up
			err = nil
		case len(nodes) > 0:
			err = fmt.Errorf("left: %q", nodes)
		}
		return err
	})
}

func TestEnsembleLeaderKilledAndRollingRestart(t *testing.T) {
	for _, flavour := range provision.ZooKeeperFlavours() {
		t.Run(flavour, func(t *testing.T) { rolling(t, provision.ZooKeeperEnsembleOf(t, flavour, 3)) })
	}
}

func rolling(t *testing.T, e *provision.Ensemble) {
	url := "zk://" + strings.Join(e.Addrs(), ",")
	const key = "rolling"
	dog := &watchdog{t: t}
	var clients []*lock.Client
	for range 6 {
		clients = append(clients, client(t, url, 4*time.Second))
	}
	stop := churn(t, dog, clients, key)
	progress(t, dog, 50, "grants before")

	leader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Nodes[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	progress(t, dog, 20, "grants after the leader was killed")
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
		progress(t, dog, 10, fmt.Sprintf("grants after the restart of server %d", i))
	}
	stop()
	nothingLeft(t, e.Addrs(), key)
	t.Logf("%d grants", dog.grants())
}

// TestEnsembleMinorityWithHolder cuts the holder's server off from the others,
// once as a follower and once as the leader. It goes on answering pings and reads
// for a while, of which the majority never hears.
func TestEnsembleMinorityWithHolder(t *testing.T) {
	e := provision.ZooKeeperEnsembleApart(t, 3)
	for _, leads := range []bool{false, true} {
		for _, how := range []string{"cut", "blackhole"} {
			t.Run(fmt.Sprintf("leader=%v/%s", leads, how), func(t *testing.T) {
				if err := e.WaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				leader, err := e.Leader(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				minority := leader
				if !leads {
					minority = (leader + 1) % 3
				}
				var majority []string
				for i, s := range e.Nodes {
					if i != minority {
						majority = append(majority, s.Addr())
					}
				}
				const ttl = time.Second // less than the time for which a server that is cut off goes on
				holder := client(t, "zk://"+e.Nodes[minority].Addr(), ttl)
				next := client(t, "zk://"+strings.Join(majority, ","), 30*time.Second) // rides out a slow election
				type result struct {
					l   *lock.Lease
					err error
					at  time.Time
				}
				var key string
				var l *lock.Lease
				var got chan result
				for try := 1; ; try++ {
					key = fmt.Sprint("minority ", how, leads, try)
					dog := &watchdog{t: t}
					held, err := holder.Mutex(key).Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					dog.enter("the holder", held)
					granted := make(chan result, 1)
					go func() {
						n, err := next.Mutex(key).Lock(t.Context())
						at := time.Now()
						dog.expired("the holder", held)
						if err == nil {
							dog.enter("the next", n)
						}
						granted <- result{n, err, at}
					}()
					eventually(t, 10*time.Second, "a waiter", func() error {
						info, err := next.Inspect(t.Context(), key)
						if err == nil && len(info.Waiters) == 0 && held.Err() == nil {
							err = errors.New("nobody waits")
						}
						return err
					})
					if err = held.Check(t.Context()); err == nil {
						l, got = held, granted
						break
					}
					if !errors.Is(err, lock.ErrLost) || try == 3 {
						t.Fatal(err)
					}
					// Something stood still for as long as this short lease: nothing was cut yet.
					t.Logf("lost before the cut: %v", err)
					if r := <-granted; r.err != nil {
						t.Fatal(r.err)
					} else if err := r.l.Unlock(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
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
			})
		}
	}
}

// TestEnsembleFollowerBehind tries at a server that hears of changes late: what was
// released is free there too, also for who has just been refused.
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

// TestEnsembleSessionMoves kills the server of the holder and of the waiters: their
// sessions move to others, with the queue in order and nobody losing anything.
func TestEnsembleSessionMoves(t *testing.T) {
	e := provision.ZooKeeperEnsemble(t, 3)
	url := "zk://" + strings.Join(e.Addrs(), ",")
	const key, ttl = "moves", 30 * time.Second // outlives slow elections
	c := client(t, url, ttl)
	l, err := c.Mutex(key).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dog := &watchdog{t: t}
	dog.enter("the holder", l)
	const n = 9
	var wg sync.WaitGroup
	var want []string
	for i := range n {
		who := fmt.Sprint("waiter ", i)
		want = append(want, who)
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
				t.Errorf("%s: %v", who, err)
				return
			}
			dog.enter(who, l)
			token, _ := l.Token()
			dog.leave(who, token)
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("%s: %v", who, err)
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
	dog.leave("the holder", token)
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if got := dog.order[1:]; !slices.Equal(got, want) {
		t.Errorf("order of service: %q", got)
	}
	nothingLeft(t, e.Addrs(), key)
}

var _ = zklock.DefaultPrefix
