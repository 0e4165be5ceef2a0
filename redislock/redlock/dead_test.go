package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/redistest"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// member returns the member of the queue for an attempt of a process. Its metadata begins with the ticket.
func member(p protocol.Process, req backend.Request) string {
	return fmt.Sprintf("%s %d %s", p.OwnerAddress(req.Owner), protocol.Millis(req.TTL), req.Metadata)
}

// The waiters of processes that are subscribed and claim no grant delay the next waiter by a
// provisional TTL for each process, and not until it asks by itself, after 15 s.
func TestRedlockDeadWaiters(t *testing.T) {
	t.Parallel() // mostly it waits
	cs := masters(t, 3)
	r := newRedlock(t, cs)
	g := redistest.Take(t, r, redlockRequest("k", 1))
	for i := range 3 {
		p := protocol.Process{Address: fmt.Sprintf("p%016x", i+1), Prefix: r.opt.prefix}
		for j := range 2 {
			req := redlockRequest("k", 10*i+j+2)
			req.TTL = time.Second
			req.Metadata = fmt.Sprintf("%d me", i+1) // with the ticket
			for _, c := range cs {
				must(t, c.ZAdd(t.Context(), p.Keys("k").Queue, redis.Z{Score: float64(10*i + j), Member: member(p, req)}).Err())
			}
		}
		for _, c := range cs {
			ps := c.Subscribe(t.Context(), p.Channel())
			t.Cleanup(func() { ps.Close() })
			_, err := ps.Receive(t.Context())
			must(t, err)
		}
	}
	ch := redistest.Queue(t.Context(), t, r, redlockRequest("k", 99))
	must(t, g.Release(t.Context()))
	must(t, redistest.GetWithin(t, 6*time.Second, ch).Release(t.Context()))
	for _, c := range cs {
		eventually(t, "nothing is left", func() bool { return c.Exists(t.Context(), "lock:k", "{lock:k}:q").Val() == 0 })
		if ttl := c.TTL(t.Context(), "{lock:k}:f").Val(); ttl < 23*time.Hour || ttl > 25*time.Hour {
			t.Errorf("the counter is kept for %v", ttl)
		}
	}
}

// A node without a vote hands nothing over, and keeps the list of processes that claim no grant, with the waiters.
func TestRedlockDeadWaitersWithoutVote(t *testing.T) {
	cs := masters(t, 3)
	r := newRedlock(t, cs)
	k, req, n := r.keys("k"), redlockRequest("k", 1), r.nodes[0]
	dead := protocol.Process{Address: fmt.Sprintf("p%016x", 1), Prefix: r.opt.prefix}
	req.Metadata = "1 me" // with the ticket
	must(t, cs[0].ZAdd(t.Context(), k.Queue, redis.Z{Score: -100, Member: dead.Address}, redis.Z{Score: 1, Member: member(dead, req)}).Err())
	names := r.names(k, "")
	must(t, cs[0].Del(t.Context(), names[len(names)-1]).Err()) // the marker: its vote is gone
	if _, err := n.call(wire.Advance, names, n.args(0, "")...); err != nil {
		t.Fatal(err)
	}
	if left := cs[0].ZCard(t.Context(), k.Queue).Val(); left != 2 {
		t.Errorf("want the process and its waiter kept, %d of 2 are left", left)
	}
}
