package redislock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// stopped queues n waiters of a process that is subscribed and does nothing, as one that is
// stopped, before all others.
func stopped(t *testing.T, b *Backend, key string, i, n int, ttl time.Duration) {
	t.Helper()
	p := protocol.Process{Address: fmt.Sprintf("p%016x", i+1), Prefix: b.svc.opt.prefix}
	ps := b.svc.srv.Client.Subscribe(t.Context(), p.Channel())
	t.Cleanup(func() { ps.Close() })
	_, err := ps.Receive(t.Context())
	must(t, err)
	for j := range n {
		r := request(key)
		r.TTL = ttl
		must(t, b.svc.srv.Client.ZAdd(t.Context(), b.svc.proc.Keys(key).Queue, redis.Z{Score: float64(1 + i*n + j), Member: memberOf(p, r)}).Err())
	}
}

// The waiters of a process that does not claim a grant are removed together: the next waiter
// waits for one provisional TTL, and not until it polls by itself, after 15 s.
func TestDeadWaitersOfOneProcess(t *testing.T) {
	t.Parallel() // mostly it waits
	b := newBackend(t, newPrefix())
	g := take(t, b, request("k"))
	stopped(t, b, "k", 0, 5, time.Second)
	ch := enqueue(t.Context(), t, b, request("k"))
	must(t, g.Release(t.Context()))
	must(t, getWithin(t, 5*time.Second, ch).Release(t.Context()))
	if n := b.svc.srv.Client.Exists(t.Context(), b.svc.proc.Keys("k").Queue).Val(); n != 0 {
		t.Error("the queue remains")
	}
}

// A process that was suspect is served again after any request for the key.
func TestSuspectReturns(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	g := take(t, b2, request("k"))
	must(t, b.svc.srv.Client.HSet(t.Context(), b.svc.keysOf("k", "")[3], "s", "s:"+b.svc.proc.Address).Err())
	ch := enqueue(t.Context(), t, b, request("k"))
	if s, err := b.svc.srv.Client.HGet(t.Context(), b.svc.keysOf("k", "")[3], "s").Result(); err != redis.Nil {
		t.Errorf("known after a request: %q, %v", s, err)
	}
	must(t, g.Release(t.Context()))
	must(t, getWithin(t, 2*time.Second, ch).Release(t.Context()))
}

// Waiters of processes that are not subscribed are removed in chunks, a request each, so that no
// script stops the server for long. The lock stays held until the last.
func TestDeadWaitersInChunks(t *testing.T) {
	addr := private(t)
	b, c := openURL(t, "redis://"+addr), client(t, addr)
	k := b.svc.proc.Keys("k")
	const dead = 1050
	fill := func() {
		p := c.Pipeline()
		for i := range dead {
			p.ZAdd(t.Context(), k.Queue, redis.Z{Score: float64(i), Member: memberOf(protocol.Process{Address: fmt.Sprintf("p%016x", i%3)}, request("k"))})
		}
		_, err := p.Exec(t.Context())
		must(t, err)
	}
	g := take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	fill()
	scripts := func() int { return calls(t, c, "evalsha", "eval") }
	before := scripts()
	must(t, g.Release(t.Context()))
	g = get(t, ch)
	if n := scripts() - before; n != dead/100+1 {
		t.Errorf("%d scripts to remove %d waiters", n, dead)
	}
	must(t, g.Release(t.Context()))
	fill() // the key is free, and a TryAcquire is not refused for dead waiters
	before = scripts()
	must(t, take(t, b, request("k")).Release(t.Context()))
	if n := scripts() - before; n != dead/100+2 {
		t.Errorf("%d scripts to remove %d waiters", n, dead)
	}
	if n := c.Exists(t.Context(), k.Lock, k.Queue).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// Names that are not used leave nothing, and tokens of a new name are greater than those before,
// whatever the clock says.
func TestNamesLeaveNothing(t *testing.T) {
	addr := private(t)
	b, c := openURL(t, "redis://"+addr), client(t, addr)
	var last uint64
	for i := range 200 {
		g := take(t, b, request(fmt.Sprint("name", i)))
		if g.Token() <= last {
			t.Fatalf("token %d after %d", g.Token(), last)
		}
		last = g.Token()
		must(t, g.Release(t.Context()))
	}
	if keys := c.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != b.svc.proc.Keys("x").Fence {
		t.Errorf("%d keys left: %.200q", len(keys), keys)
	}
	if ttl := c.TTL(t.Context(), b.svc.proc.Keys("x").Fence).Val(); ttl != -1 {
		t.Errorf("the counter expires in %v", ttl)
	}
	hour := uint64(time.Hour.Microseconds())
	must(t, c.Set(t.Context(), b.svc.proc.Keys("x").Fence, last+hour, 0).Err()) // as if the clock had been set back since
	if g := take(t, b, request("another")); g.Token() != last+hour+1 {
		t.Errorf("token %d after %d", g.Token(), last+hour)
	}
}

// Attempts are abandoned together in one round trip, each as Abandon would.
func TestAbandonBatch(t *testing.T) {
	addr := private(t)
	c := client(t, addr)
	b := openURL(t, "redis://"+addr)
	var reqs []backend.Request
	for i := range 100 {
		r := request(fmt.Sprint("k", i))
		reqs = append(reqs, r)
		if i%2 == 0 {
			take(t, b, r)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	held := take(t, b, request("held"))
	r := request("held")
	ch := enqueue(ctx, t, b, r)
	cancel()
	<-ch
	reqs = append(reqs, r)
	must(t, c.ScriptFlush(t.Context()).Err())
	for range 2 {
		for i, err := range b.AbandonBatch(t.Context(), reqs) {
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
	}
	for i, r := range reqs {
		k := b.svc.proc.Keys(r.Key)
		if n := c.Exists(t.Context(), k.Queue).Val(); n != 0 {
			t.Errorf("%d: the queue remains", i)
		}
		if n := c.Exists(t.Context(), k.Lock).Val(); n != 0 && r.Key != "held" {
			t.Errorf("%d: the lock remains", i)
		}
		if n := c.Exists(t.Context(), k.Tombstone(r.Owner)).Val(); n != 1 {
			t.Errorf("%d: no tombstone", i)
		}
	}
	must(t, held.Release(t.Context()))
}
