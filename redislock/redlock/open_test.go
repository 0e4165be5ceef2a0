package redlock

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
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

// The scripts of a real node: it raises the token of a grant that it has, keeps the counter for a time, announces a
// release and a minimum hold, and says which run of the server has granted.
func TestRedlockOnServers(t *testing.T) {
	cs := masters(t, 3)
	r, other := newRedlock(t, cs, WithRetention(time.Hour)), newRedlock(t, cs)
	const far = uint64(4e15) // beyond any clock of today
	for _, c := range cs[1:] {
		must(t, c.Set(t.Context(), "{lock:k}:f", far, 0).Err())
	}
	must(t, cs[1].Set(t.Context(), "{lock:k}:f", far+5, 0).Err())
	g, err := r.TryAcquire(t.Context(), redlockRequest("k", 1))
	must(t, err)
	have := 0
	for _, c := range cs {
		if n, err := c.Get(t.Context(), "{lock:k}:f").Uint64(); err == nil && n >= g.Token() {
			have++
		}
		if d := c.PTTL(t.Context(), "{lock:k}:f").Val(); d > 0 && (d > time.Hour+10*time.Second || d < 59*time.Minute) {
			t.Errorf("the counter is kept for %v", d)
		}
	}
	if have < 2 {
		t.Errorf("token %d is at %d of 3 nodes when it is reported", g.Token(), have)
	}
	wait := func(n int) (<-chan acquired, func() error) {
		waiting, got := make(chan bool, 1), make(chan acquired, 1)
		req := redlockRequest("k", n)
		req.TTL, req.OnWait = time.Minute, func(*backend.LockedError) { waiting <- true }
		go func() {
			g, err := other.Acquire(t.Context(), req)
			got <- acquired{Grant: g, Err: err}
		}()
		<-waiting
		return got, func() error { return other.svc.Listen(t.Context(), "k") }
	}
	must(t, g.Renew(t.Context(), time.Hour/60))
	next, listening := wait(2)
	must(t, listening())
	begun := time.Now()
	must(t, g.Release(t.Context()))
	g = get(t, next)
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the waiter was granted the key after %v", took)
	}
	keeper := g.(backend.Keeper)
	last := make(chan acquired, 1)
	go func() {
		g, err := r.Acquire(t.Context(), redlockRequest("k", 3))
		last <- acquired{Grant: g, Err: err}
	}()
	eventually(t, "it listens", func() bool { return r.svc.Listening("k") })
	must(t, keeper.Keep(t.Context(), 300*time.Millisecond))
	begun = time.Now()
	must(t, get(t, last).Release(t.Context()))
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the waiter was granted the key %v after a lease that was shortened to 300 ms", took)
	}
	for i, c := range cs {
		run := c.InfoMap(t.Context(), "server").Val()["Server"]["run_id"]
		if m := c.Get(t.Context(), "{lock:}:born").Val(); !strings.HasPrefix(m, run+" ") {
			t.Errorf("marker of node %d: %q, of run %s", i, m, run)
		}
	}
}

// A key of another type at a node is no vote, and at a majority an error that names it.
func TestRedlockKeyOfAnotherType(t *testing.T) {
	cs := masters(t, 3)
	r := newRedlock(t, cs)
	must(t, cs[0].LPush(t.Context(), "lock:k", "x").Err())
	g, err := r.TryAcquire(t.Context(), redlockRequest("k", 1))
	must(t, err)
	must(t, g.Release(t.Context()))
	must(t, cs[1].LPush(t.Context(), "lock:k", "x").Err())
	eventually(t, "the release has arrived", func() bool { return cs[2].Exists(t.Context(), "lock:k").Val() == 0 })
	if _, err := r.TryAcquire(t.Context(), redlockRequest("k", 2)); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "lock:k") {
		t.Errorf("at two of three nodes: %v", err)
	}
}
