package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

func TestRedlockRefusesAtOpening(t *testing.T) {
	cs := masters(t, 3)
	again := redis.NewClient(cs[0].(*redis.Client).Options())
	t.Cleanup(func() { _ = again.Close() })
	for what, f := range map[string]func() error{
		"3 or more":       func() error { _, err := New(cs[:2]); return err },
		"the same server": func() error { _, err := New([]redis.UniversalClient{cs[0], cs[1], again}); return err },
		"a *redis.Client": func() error { _, err := New([]redis.UniversalClient{nil, cs[1], cs[2]}); return err },
		"restart delay":   func() error { _, err := New(cs, WithRestartDelay(time.Millisecond)); return err },
		"node timeout":    func() error { _, err := New(cs, WithNodeTimeout(0)); return err },
	} {
		if err := f(); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	for url, want := range map[string]string{
		"redlock://a,b":                         "three different hosts",
		"redlock://a,b,b":                       "three different hosts",
		"redlock://a,b,c?wait_replicas=1":       "wait_replicas",
		"redlock://a,b,c?wait_timeout=1s":       "wait_timeout",
		"redlock://a,b,c?restart_delay=1ms":     "restart delay",
		"redlock://a,b,c/x":                     "number of a database",
		"redlock://a,b,c?tls_ca=x":              "redlock",
		"redlock://a,b,c?durable=perhaps":       "durable",
		"redlock://a,b,c?node_timeout=1s&nod=1": "unknown",
	} {
		u, err := backend.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Open(t.Context(), u); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", url, want, err)
		}
	}
}

func TestRedlockErrorsNameNodesAndNoSecret(t *testing.T) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort())))
	}
	_, err := lock.Open(t.Context(), "redlock://user:s3cret@"+strings.Join(addrs, ","))
	if err == nil {
		t.Fatal("opened without a server")
	}
	want := "lock: open on redlock: 0 of 3 nodes answered, want 2"
	for i, a := range addrs {
		want += []string{": ", "; ", "; "}[i] + "node " + a + ": connect: connection refused"
	}
	if err.Error() != want || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A node that hangs is no deadline of the caller.
func TestRedlockTimeoutOfANode(t *testing.T) {
	cs := masters(t, 3)
	r, ps := behindProxies(t, cs, nil, WithNodeTimeout(10*time.Millisecond))
	hang := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(hang) }))
	for _, p := range ps[:2] {
		p.Set(onScript(wire.Acquire, func() action { <-hang; return never }))
	}
	_, err := r.TryAcquire(t.Context(), redlockRequest("k", 1))
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 3 nodes voted, want 2: node "+r.nodes[0].name+": no answer in time; node ") {
		t.Error(err)
	}
}

func TestRedlockLeavesTheCallersClientsOpen(t *testing.T) {
	cs := masters(t, 3)
	r := newRedlock(t, cs)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.TryAcquire(t.Context(), redlockRequest("k", 1)); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Nodes disagree about the last token: the next one is greater than all that a
// majority met, and a majority has it before the grant is reported.
func TestRedlockWritesTheTokenBack(t *testing.T) {
	cs := masters(t, 3)
	r := newRedlock(t, cs)
	const far = uint64(4e15) // beyond any clock of today
	if err := cs[1].Set(t.Context(), "{lock:k}:f", far, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		g, err := r.TryAcquire(t.Context(), redlockRequest("k", i+1))
		if err != nil {
			t.Fatal(err)
		}
		agree := 0
		for _, c := range cs {
			if n, err := c.Get(t.Context(), "{lock:k}:f").Uint64(); err == nil && n >= g.Token() {
				agree++
			}
		}
		if agree < 2 {
			t.Errorf("token %d is at %d of 3 nodes when it is reported", g.Token(), agree)
		}
		if err := g.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if g, err := r.TryAcquire(t.Context(), redlockRequest("k", 99)); err != nil || g.Token() <= far {
		t.Errorf("token after a release that carried it everywhere: %v, %v", g, err)
	}
}

// Votes are split, so that none of three has a majority. They agree on one, and then
// on the next, long before the votes run out.
func TestRedlockSplitVotesConverge(t *testing.T) {
	cs := masters(t, 5)
	for round := range 5 {
		key := fmt.Sprintf("k%d", round)
		rs := []*Backend{newRedlock(t, cs), newRedlock(t, cs), newRedlock(t, cs)}
		// the votes of three processes that asked at the same time
		var attempts []*attempt
		for i, r := range rs {
			attempts = append(attempts, r.newAttempt(redlockRequest(key, 100*round+i+1), joinQueue))
		}

		for node, who := range []int{0, 0, 1, 1, 2} {
			a := attempts[who]
			a.mu.Lock()
			a.roundStart = time.Now()
			a.askNode(node, joinQueue, uint64(a.ticket))
			answered := a.votes[node].answered
			a.mu.Unlock()
			<-answered
		}
		start := time.Now()
		var wg sync.WaitGroup
		for _, a := range attempts {
			wg.Go(func() {
				w := &waiting{attempt: a, timer: time.NewTimer(time.Hour)}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				g, err := w.wait(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if err := g.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		if took := time.Since(start); took >= attempts[0].req.TTL {
			t.Errorf("round %d: %v: votes had to expire", round, took)
		}
	}
}

// A new set votes at once; a node that lost its marker does not, before the delay.
func TestRedlockMarker(t *testing.T) {
	cs := masters(t, 3)
	r := newRedlock(t, cs, WithRestartDelay(time.Second))
	req := func(n int) backend.Request {
		q := redlockRequest("k", n)
		q.TTL = time.Second
		return q
	}
	g, err := r.TryAcquire(t.Context(), req(1))
	if err != nil {
		t.Fatalf("a new set: %v", err)
	}
	if err := g.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range cs[:2] {
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for n := 2; ; n++ {
		g, err := r.TryAcquire(t.Context(), req(n))
		if err == nil {
			if took := time.Since(start); n == 2 || took < 500*time.Millisecond {
				t.Errorf("a majority of emptied nodes voted after %v", took)
			}
			_ = g.Release(t.Context())
			return
		}
		if !strings.Contains(err.Error(), "votes again in") {
			t.Errorf("want when it votes again in %v", err)
		}
		if time.Since(start) > 30*time.Second {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // between two tries
	}
}

// A new set is recognized although a node answers late.
func TestRedlockNewSetWithASlowNode(t *testing.T) {
	cs := masters(t, 3)
	begun := time.Now()
	r, _ := behindProxies(t, cs, func(ps []*proxy) {
		ps[0].Set(func([]byte) action {
			server.Sleep(t.Context(), time.Until(begun.Add(500*time.Millisecond))) // how slow it is
			return pass
		})
	}, WithNodeTimeout(time.Millisecond))
	for i, c := range cs {
		eventually(t, "the marker of a new set at node "+r.nodes[i].name, func() bool {
			return strings.Contains(c.Get(t.Context(), markerKey(protocol.DefaultPrefix)).Val(), " 0 ") // of no quarantine
		})
	}
}
