package redlock

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// behindProxies is a Redlock of its own behind a proxy before each master, of which
// first runs before there is any connection.
func behindProxies(t *testing.T, cs []redis.UniversalClient, first func([]*proxy), opts ...Option) (*Backend, []*proxy) {
	t.Helper()
	var ps []*proxy
	var through []redis.UniversalClient
	for _, c := range cs {
		p := newProxy(t, c.(*redis.Client).Options().Addr)
		ps = append(ps, p)
		client := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		through = append(through, client)
	}
	if first != nil {
		first(ps)
	}
	return newRedlock(t, through, opts...), ps
}

// asks asks one node and waits for its answer.
func (a *attempt) asks(node int, queue string) {
	a.mu.Lock()
	a.roundStart = time.Now()
	a.askNode(node, queue, uint64(a.ticket))
	answered := a.votes[node].answered
	a.mu.Unlock()
	<-answered
}

func (a *attempt) votesFor(node int) (state int, yieldPending bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.votes[node].state, a.votes[node].yieldPending()
}

// heldYield lets c, who came after a, hold node 0, and yield it by a request that the
// proxy keeps, and get node 1. It returns what delivers that.
func heldYield(t *testing.T) ([]redis.UniversalClient, []*proxy, *attempt, func()) {
	t.Helper()
	cs := masters(t, 3)
	first := newRedlock(t, cs)
	r2, ps := behindProxies(t, cs, nil)
	earlier, later := redlockRequest("k", 1), redlockRequest("k", 2)
	earlier.TTL, later.TTL = time.Minute, time.Minute // nothing runs out here
	a := first.newAttempt(earlier, joinQueue)
	c := r2.newAttempt(later, joinQueue)
	if c.ticket <= a.ticket { // two clocks are compared
		c.ticket = a.ticket + 1
	}
	eventually(t, "the earlier one listens", first.nodes[0].subscribed)
	c.asks(0, noQueue)
	a.asks(0, joinQueue)
	if s, _ := c.votesFor(0); s != mine {
		t.Fatalf("the free node's vote: %d", s)
	}
	if s, _ := a.votesFor(0); s != theirs {
		t.Fatalf("the taken node's vote: %d", s)
	}
	kept, cut := make(chan []byte, 1), make(chan struct{})
	end := sync.OnceFunc(func() { close(cut) })
	t.Cleanup(end)
	ps[0].Set(func(b []byte) action {
		if !bytes.Contains(b, []byte(wire.Yield.SHA)) {
			return pass
		}
		kept <- bytes.Clone(b)
		ps[0].Set(nil)
		<-cut
		return never
	})
	c.yield()
	request := <-kept
	c.asks(1, noQueue)
	if g, _ := c.tryGrant(); g != nil {
		t.Fatal("a majority with a vote that is being given away")
	}
	end()
	eventually(t, "the yield has no answer", func() bool { s, _ := c.votesFor(0); return s == noVote })
	return cs, ps, c, func() {
		t.Helper()
		conn, err := net.Dial("tcp", cs[0].(*redis.Client).Options().Addr)
		must(t, err)
		defer conn.Close()
		_, err = conn.Write(request)
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		answer := make([]byte, 256)
		n, err := io.ReadAtLeast(conn, answer, 4)
		must(t, err)
		if answer[0] != '*' {
			t.Fatalf("the yield was not executed: %q", answer[:n])
		}
	}
}

func holderAt(t *testing.T, c redis.UniversalClient) string {
	t.Helper()
	v, err := c.Get(t.Context(), "lock:k").Result()
	must(t, err)
	owner, _, _ := strings.Cut(v, "@")
	return owner
}

// A yield without an answer arrives after a poll has found the grant, which is one
// of the majority by now. With its vote another could hold the lock too.
func TestRedlockLateYield(t *testing.T) {
	cs, _, c, deliver := heldYield(t)
	c.asks(0, noQueue)
	eventually(t, "a majority", func() bool { g, _ := c.tryGrant(); return g != nil })
	deliver()
	if got := holderAt(t, cs[0]); got != c.req.Owner {
		t.Errorf("a node that is counted on is held by %s, not by the holder", got)
	}
}

// A yield without an answer may arrive as long as the lock is held. A renewal counts
// on that node only when it has made a new grant of the one that is yielded.
func TestRedlockLateYieldAndRenewal(t *testing.T) {
	cs, ps, c, deliver := heldYield(t)
	c.asks(2, noQueue)
	var g *grant
	eventually(t, "a majority", func() bool { g, _ = c.tryGrant(); return g != nil })
	refuse := func() {
		ps[2].Set(func([]byte) action { return never })
		ps[2].Cut()
	}
	refuse()
	if err := g.Renew(t.Context(), c.req.TTL); err == nil {
		t.Fatal("a renewal counted on a vote that may still be given away")
	}
	ps[2].Set(nil)
	eventually(t, "the vote is taken back", func() bool {
		must(t, g.Renew(t.Context(), c.req.TTL))
		s, yieldPending := c.votesFor(0)
		return s == mine && !yieldPending
	})
	refuse()
	must(t, g.Renew(t.Context(), c.req.TTL))
	deliver()
	if got := holderAt(t, cs[0]); got != c.req.Owner {
		t.Errorf("a node that a renewal counted on is held by %s, not by the holder", got)
	}
}
