package redislock

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"

	"github.com/interlock-go/lock/redislock/internal/server"
)

// A subscription that is live but delivers nothing is repeated.
func TestDeafSubscription(t *testing.T) {
	p := newPrefix()
	b, b2, c := newBackend(t, p), newBackend(t, p), client(t, sharedServer(t))
	name := b.svc.proc.Channel()
	listening := func() int64 { return c.PubSubNumSub(t.Context(), name).Val()[name] }
	deafen := func() {
		b.svc.subs.mu.Lock()
		ps := b.svc.subs.listeners[nil].ps
		b.svc.subs.mu.Unlock()
		must(t, ps.Unsubscribe(t.Context(), name))
	}
	// the server says so when it is asked, before anybody is skipped
	g0 := take(t, b2, request("k0"))
	ch0 := enqueue(t.Context(), t, b, request("k0"))
	deafen()
	eventually(t, "the channel has no subscriber", func() bool { return listening() == 0 })
	b.svc.subs.pollNow(name)
	eventually(t, "it listens again", func() bool { return listening() == 1 })
	must(t, g0.Release(t.Context()))
	must(t, get(t, ch0).Release(t.Context()))
	// the server knows: the waiter is skipped
	g := take(t, b2, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	deafen()
	eventually(t, "the channel has no subscriber", func() bool { return listening() == 0 })
	must(t, g.Release(t.Context()))
	g = take(t, b2, request("k"))
	b.svc.subs.pollNow(name) // as it would by itself later
	eventually(t, "it listens again", func() bool { return listening() == 1 })
	eventually(t, "and knows it", func() bool {
		b.svc.subs.mu.Lock()
		defer b.svc.subs.mu.Unlock()
		return b.svc.subs.channels[name].live
	})
	must(t, g.Release(t.Context()))
	g = get(t, ch)
	// the server does not: another connection is subscribed
	other := c.Subscribe(t.Context(), name)
	defer other.Close()
	_, err := other.Receive(t.Context())
	must(t, err)
	must(t, g.Release(t.Context()))
	g = take(t, b2, request("k"))
	ch = enqueue(t.Context(), t, b, request("k"))
	deafen()
	eventually(t, "it does not listen", func() bool { return listening() == 1 })
	must(t, g.Release(t.Context()))
	b.svc.subs.pollNow(name)
	g = get(t, ch)
	eventually(t, "it listens again", func() bool { return listening() == 2 })
	must(t, g.Release(t.Context()))
}

// A process that is subscribed on a replica, which may have been the master, is skipped: it
// must not read a grant that the next waiter gets, and is notified to resubscribe.
func TestListenerAtReplica(t *testing.T) {
	master, replica := replicated(t)
	b := openURL(t, "redis://"+master)
	stale := protocol.Process{Address: "p00000000000000aa", Prefix: b.svc.opt.prefix}
	ps := client(t, replica).Subscribe(t.Context(), stale.Channel())
	defer ps.Close()
	_, err := ps.Receive(t.Context())
	must(t, err)
	g := take(t, b, request("k"))
	must(t, b.svc.srv.Client.ZAdd(t.Context(), b.svc.proc.Keys("k").Queue, redis.Z{Score: 1, Member: memberOf(stale, request("k"))}).Err())
	must(t, g.Release(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m, err := ps.ReceiveMessage(ctx)
	must(t, err)
	if m.Payload != "x" {
		t.Errorf("notified %q at a replica", m.Payload)
	}
	in, err := b.Inspect(t.Context(), "k")
	must(t, err)
	if in.Holder != nil || len(in.Waiters) != 0 {
		t.Errorf("%+v", in)
	}
}

// While the server refuses connections, one goroutine repeats the subscription, however
// often it fails.
func TestOneGoroutineRestores(t *testing.T) {
	p := newProxy(t, sharedServer(t))
	b := openURL(t, "redis://"+p.Addr)
	g := take(t, newBackend(t, b.svc.opt.prefix), request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	var refused atomic.Int64
	p.Set(func([]byte) action {
		refused.Add(1)
		return never
	})
	p.Cut()
	restoring := func() int {
		stack := make([]byte, 4<<20)
		return strings.Count(string(stack[:runtime.Stack(stack, true)]), "(*subscriptions).restore(")
	}
	most := 0
	eventually(t, "many tries", func() bool {
		most = max(most, restoring())
		return refused.Load() >= 12
	})
	p.Set(nil)
	if most > 1 {
		t.Errorf("%d goroutines restore one subscription", most)
	}
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
}

// A waiter polls when its subscription breaks while a goroutine still restores the one
// before.
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
	ch := enqueue(t.Context(), t, b, r)
	b.svc.subs.mu.Lock()
	b.svc.subs.channels[b.svc.proc.Channel()].restoring = true
	b.svc.subs.mu.Unlock()
	stop()
	begun := time.Now()
	if a := <-ch; !isUncertain(a.Err) || time.Since(begun) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), a.Err)
	}
}

// A subscription that the server does not confirm is repeated.
func TestUnansweredSubscription(t *testing.T) {
	t.Parallel()
	addr := private(t)
	p := newProxy(t, addr)
	b := openURL(t, "redis://"+p.Addr)
	g := take(t, b, request("k"))
	kept := subscribeHangs(t, p, 2) // the client library's own, and ours
	must(t, client(t, addr).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	eventually(t, "it subscribes again", func() bool { return kept.Load() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ch := enqueue(ctx, t, b, request("k"))
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
}

// refusing opens a backend whose client keeps its connections, and opens no new ones while
// refuse is set. It counts the attempts to connect.
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

// While subscriptions fail at once, and scripts do not, a waiter pauses between its
// attempts to subscribe.
func TestSubscriptionsThatFailAtOnce(t *testing.T) {
	t.Parallel()
	addr := private(t)
	b, refuse, dials := refusing(t, addr)
	g := take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
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

// A waiter that cannot subscribe again fails after its TTL, although scripts work.
func TestSubscriptionsThatFailForLong(t *testing.T) {
	t.Parallel()
	addr := private(t)
	b, refuse, _ := refusing(t, addr)
	r := request("k")
	r.TTL = time.Minute
	take(t, b, r)
	r = request("k")
	r.TTL = time.Second
	ch := enqueue(t.Context(), t, b, r)
	refuse.Store(true)
	must(t, client(t, addr).Do(t.Context(), "client", "kill", "type", "pubsub").Err())
	select {
	case a := <-ch:
		if !isUncertain(a.Err) {
			t.Error(a.Err)
		}
	case <-time.After(4*server.ConfirmTimeout + r.TTL):
		t.Error("it waits on")
	}
}

// A subscription that the server ends is restored, and a grant of the time between is found.
func TestSubscriptionRestored(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	g := take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b2, request("k"))
	endSubscriptions(t, b2)()
	must(t, g.Release(t.Context()))
	g2 := get(t, ch)
	must(t, g2.Renew(t.Context(), time.Hour)) // its end wakes no waiter
	ch = enqueue(t.Context(), t, b, request("k"))
	endSubscriptions(t, b)
	must(t, g2.Release(t.Context())) // to a process without a subscription
	must(t, getWithin(t, 5*time.Second, ch).Release(t.Context()))
}

// It is restored in a process without waiters too: a holder is to be notified of a break.
func TestSubscriptionOfHolderRestored(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	r, lost := request("k"), make(chan error, 1)
	r.OnLost = func(err error) { lost <- err }
	take(t, b, r)
	endSubscriptions(t, b)()
	_, err := b2.Break(t.Context(), "k", "")
	must(t, err)
	select {
	case err := <-lost:
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("OnLost of the holder: want ErrLost, got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("OnLost of the holder was not called")
	}
}

// endSubscriptions ends those of all processes at the shared server. again waits until b is subscribed again: by itself,
// after the client library has made a connection of its own, which b closes.
func endSubscriptions(t *testing.T, b *Backend) (again func()) {
	t.Helper()
	before := listenerOf(b)
	n, err := client(t, sharedServer(t)).Do(t.Context(), "client", "kill", "type", "pubsub").Int64()
	if n == 0 || err != nil {
		t.Fatalf("%d subscriptions were killed: %v", n, err)
	}
	return func() {
		t.Helper()
		eventually(t, "the subscription is back", func() bool {
			l := b.svc.subs.listenerOf(b.svc.proc.Channel())
			return l != nil && l != before
		})
	}
}
