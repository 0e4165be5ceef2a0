package redislock

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSubscriptionRestored(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	g := take(t, b, request("k"))
	ch := queue(t, t.Context(), b2, request("k"))
	killed := func() int64 {
		n, err := b.rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Int64()
		must(t, err)
		return n
	}
	if killed() == 0 {
		t.Fatal("no subscription was killed")
	}
	eventually(t, "the subscription is back", func() bool {
		return b.rdb.PubSubNumSub(t.Context(), b2.processChannel()).Val()[b2.processChannel()] == 1
	})
	must(t, g.Release(t.Context()))
	g2 := get(t, ch)
	must(t, g2.Renew(t.Context(), time.Hour)) // its end wakes nobody
	// released while nothing is subscribed: the poll after the return finds it
	ch = queue(t, t.Context(), b, request("k"))
	killed()
	must(t, g2.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
}

// A subscription that is taken for alive and delivers nothing is made anew.
func TestDeafSubscription(t *testing.T) {
	p := newPrefix()
	b, b2, c := newBackend(t, p), newBackend(t, p), client(t, server(t))
	name := b.processChannel()
	listening := func() int64 { return c.PubSubNumSub(t.Context(), name).Val()[name] }
	deafen := func() {
		b.subs.mu.Lock()
		ps := b.subs.listeners[nil].ps
		b.subs.mu.Unlock()
		must(t, ps.Unsubscribe(t.Context(), name))
	}
	// the server says so when it is asked, before anybody is skipped
	g0 := take(t, b2, request("k0"))
	ch0 := queue(t, t.Context(), b, request("k0"))
	deafen()
	eventually(t, "nobody listens", func() bool { return listening() == 0 })
	b.pollNow(name)
	eventually(t, "it listens again", func() bool { return listening() == 1 })
	must(t, g0.Release(t.Context()))
	must(t, get(t, ch0).Release(t.Context()))
	// the server knows: the waiter is skipped
	g := take(t, b2, request("k"))
	ch := queue(t, t.Context(), b, request("k"))
	deafen()
	eventually(t, "nobody listens", func() bool { return listening() == 0 })
	must(t, g.Release(t.Context()))
	g = take(t, b2, request("k"))
	b.pollNow(name) // as it would by itself later
	eventually(t, "it listens again", func() bool { return listening() == 1 })
	eventually(t, "and knows it", func() bool {
		b.subs.mu.Lock()
		defer b.subs.mu.Unlock()
		return b.subs.channels[name].live
	})
	must(t, g.Release(t.Context()))
	g = get(t, ch)
	// the server does not: somebody else reads the channel
	other := c.Subscribe(t.Context(), name)
	defer other.Close()
	_, err := other.Receive(t.Context())
	must(t, err)
	must(t, g.Release(t.Context()))
	g = take(t, b2, request("k"))
	ch = queue(t, t.Context(), b, request("k"))
	deafen()
	eventually(t, "it does not listen", func() bool { return listening() == 1 })
	must(t, g.Release(t.Context()))
	b.pollNow(name)
	g = get(t, ch)
	eventually(t, "it listens again", func() bool { return listening() == 2 })
	must(t, g.Release(t.Context()))
}

// Who listens at a replica, which may have been the master, is not one who can be
// handed anything: it must not read a grant that goes to another, and hears that it
// is passed over.
func TestListenerAtReplica(t *testing.T) {
	master, replica := replicated(t)
	b := openURL(t, "redis://"+master)
	stale := &Backend{address: "p00000000000000aa", opt: b.opt}
	ps := client(t, replica).Subscribe(t.Context(), stale.processChannel())
	defer ps.Close()
	_, err := ps.Receive(t.Context())
	must(t, err)
	g := take(t, b, request("k"))
	must(t, b.rdb.ZAdd(t.Context(), b.keys("k").queue, redis.Z{Score: 1, Member: stale.member(request("k"))}).Err())
	must(t, g.Release(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m, err := ps.ReceiveMessage(ctx)
	must(t, err)
	if m.Payload != "x" {
		t.Errorf("told %q at a replica", m.Payload)
	}
	in, err := b.Inspect(t.Context(), "k")
	must(t, err)
	if in.Holder != nil || len(in.Waiters) != 0 {
		t.Errorf("%+v", in)
	}
}

// While the server refuses connections one goroutine tries to subscribe again,
// however often it fails.
func TestOneGoroutineRestores(t *testing.T) {
	p := newProxy(t, server(t))
	b := openURL(t, "redis://"+p.addr)
	g := take(t, newBackend(t, b.opt.prefix), request("k"))
	ch := queue(t, t.Context(), b, request("k"))
	var refused atomic.Int64
	p.set(func([]byte) action {
		refused.Add(1)
		return never
	})
	p.cut()
	restoring := func() int {
		stack := make([]byte, 4<<20)
		return strings.Count(string(stack[:runtime.Stack(stack, true)]), "(*subscriptions).restore(")
	}
	most := 0
	eventually(t, "many tries", func() bool {
		most = max(most, restoring())
		return refused.Load() >= 12
	})
	p.set(nil)
	if most > 1 {
		t.Errorf("%d goroutines restore one subscription", most)
	}
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
}

// A waiter hears that its subscription broke although a goroutine, which sleeps
// between its tries, still restores the one before.
func TestBrokenWhileRestoring(t *testing.T) {
	addr, stop, err := start(freePort())
	if err != nil {
		missing(t, err)
	}
	defer func() { stop() }()
	b := openURL(t, "redis://"+addr)
	take(t, b, request("k"))
	r := request("k")
	r.TTL = 300 * time.Millisecond
	ch := queue(t, t.Context(), b, r)
	b.subs.mu.Lock()
	b.subs.channels[b.processChannel()].again = true
	b.subs.mu.Unlock()
	stop()
	begun := time.Now()
	if a := <-ch; !isUncertain(a.err) || time.Since(begun) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), a.err)
	}
}

// subscribeHangs keeps the first n requests to subscribe that come to the proxy, and
// passes all that follow.
func subscribeHangs(t *testing.T, p *proxy, n int64) (kept *atomic.Int64) {
	t.Helper()
	end := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(end) }))
	kept = new(atomic.Int64)
	p.set(func(b []byte) action {
		if bytes.Contains(b, []byte("subscribe")) && kept.Add(1) <= n {
			<-end
			return never
		}
		return pass
	})
	return kept
}

// A subscription that the server takes and never confirms is made anew.
func TestUnansweredSubscription(t *testing.T) {
	t.Parallel()
	addr := private(t)
	p := newProxy(t, addr)
	b := openURL(t, "redis://"+p.addr)
	g := take(t, b, request("k"))
	kept := subscribeHangs(t, p, 2) // the client library's own, and ours
	must(t, client(t, addr).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	eventually(t, "it subscribes again", func() bool { return kept.Load() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ch := queue(t, ctx, b, request("k"))
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
}

func TestRedlockUnansweredSubscription(t *testing.T) {
	t.Parallel()
	var kept *atomic.Int64
	r, _ := behindProxies(t, masters(t, 3), func(ps []*proxy) { kept = subscribeHangs(t, ps[0], 1) })
	eventually(t, "it subscribes", func() bool { return kept.Load() > 0 })
	eventually(t, "it subscribes again", r.nodes[0].listens)
}

// refusing opens a backend whose client fails to connect once it is told so, and
// keeps the connections that it has. It counts the tries.
func refusing(t *testing.T, addr string) (b *Backend, refuse *atomic.Bool, dials *atomic.Int64) {
	t.Helper()
	refuse, dials = new(atomic.Bool), new(atomic.Int64)
	c := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if refuse.Load() {
			dials.Add(1)
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused by the test")}
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}})
	t.Cleanup(func() { _ = c.Close() })
	b, err := New(c)
	must(t, err)
	t.Cleanup(func() { closeBackend(t, b) })
	return b, refuse, dials
}

// While subscriptions fail at once, and scripts do not, who waits for one leaves
// pauses between the tries.
func TestSubscriptionsThatFailAtOnce(t *testing.T) {
	t.Parallel()
	addr := private(t)
	b, refuse, dials := refusing(t, addr)
	g := take(t, b, request("k"))
	ch := queue(t, t.Context(), b, request("k"))
	refuse.Store(true)
	must(t, client(t, addr).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && dials.Load() < 150; {
		time.Sleep(time.Millisecond)
	}
	if n := dials.Load(); n == 0 || n >= 150 {
		t.Errorf("%d tries in 2 s", n)
	}
	refuse.Store(false)
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
}

// Who waited and cannot be told any more does not wait for ever, though scripts work.
func TestSubscriptionsThatFailForLong(t *testing.T) {
	t.Parallel()
	addr := private(t)
	b, refuse, _ := refusing(t, addr)
	r := request("k")
	r.TTL = time.Minute
	take(t, b, r)
	r = request("k")
	r.TTL = time.Second
	ch := queue(t, t.Context(), b, r)
	refuse.Store(true)
	must(t, client(t, addr).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	select {
	case a := <-ch:
		if !isUncertain(a.err) {
			t.Error(a.err)
		}
	case <-time.After(4*confirmTime + r.TTL):
		t.Error("it waits on")
	}
}
