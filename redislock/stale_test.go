package redislock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/redislock/internal/redistest"
)

// If all connections of a client fall silent and new ones work, one request has no reply, and the next one is sent over
// a new connection, whatever the size of the pool. The subscription is replaced too.
func TestStaleConnections(t *testing.T) {
	for _, size := range []int{10, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			px := newProxy(t, sharedServer(t))
			p := newPrefix()
			b := openURL(t, fmt.Sprintf("redis://%s?prefix=%s&read_timeout=1s&pool_size=%d", px.Addr, p, size))
			direct := newBackend(t, p)
			g := take(t, b, request("kept"))
			held := take(t, direct, request("k"))
			ch := enqueue(t.Context(), t, b, request("k"))
			fillPool(t, px, b, size)

			before := listenerOf(b)
			px.Silence()
			if err := g.Renew(t.Context(), time.Minute); !isUncertain(err) {
				t.Errorf("a request over a silent connection: %v", err)
			}
			must(t, g.Renew(t.Context(), time.Minute))
			must(t, take(t, b, request("new")).Release(t.Context()))
			eventually(t, "the subscription is replaced", func() bool {
				l := listenerOf(b)
				return l != nil && l != before
			})
			must(t, held.Release(t.Context()))
			must(t, getWithin(t, 3*time.Second, ch).Release(t.Context()))
		})
	}
}

func listenerOf(b *Backend) *listener {
	b.svc.subs.mu.Lock()
	defer b.svc.subs.mu.Unlock()
	return b.svc.subs.listeners[nil]
}

// fillPool opens all connections of the pool.
func fillPool(t *testing.T, px *redistest.Proxy, b *Backend, size int) {
	t.Helper()
	var all sync.WaitGroup
	var arrived atomic.Int64
	full := make(chan struct{})
	px.Set(func(data []byte) action {
		if !strings.HasSuffix(string(data), "\r\nping\r\n") {
			return pass
		}
		if arrived.Add(1) == int64(size) {
			close(full)
		}
		<-full
		return pass
	})
	for range size {
		all.Go(func() {
			if err := b.Ping(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	px.Set(nil)
}

// A client keeps its connections to a server that was demoted, while its name belongs to another one: the refusal of
// the demoted server is answered by a request over a new connection.
func TestDemotedServer(t *testing.T) {
	old, successor := private(t), private(t)
	admin, next := client(t, old), client(t, successor)
	px := newProxy(t, old)
	b := openURL(t, "redis://"+px.Addr+"?pool_size=20")
	g := take(t, b, request("kept"))
	held := take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	fillPool(t, px, b, 20)
	follow(t, next, old)
	must(t, next.ReplicaOf(t.Context(), "NO", "ONE").Err())
	px.To(successor)
	follow(t, admin, successor)

	// each at the first attempt
	must(t, g.Renew(t.Context(), time.Minute))
	must(t, take(t, b, request("new")).Release(t.Context()))
	eventually(t, "the waiter is subscribed at the successor", func() bool {
		return next.PubSubNumSub(t.Context(), b.svc.proc.Channel()).Val()[b.svc.proc.Channel()] == 1
	})
	must(t, held.Release(t.Context()))
	must(t, getWithin(t, 5*time.Second, ch).Release(t.Context()))
	must(t, g.Release(t.Context()))

	// While no server can write, a request has that outcome.
	must(t, next.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	if _, err := b.TryAcquire(t.Context(), request("new")); err == nil || isUncertain(err) || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("at a replica: %v", err)
	}
}

// follow makes c a replica of a server, and returns when it has its data.
func follow(t *testing.T, c *redis.Client, of string) {
	t.Helper()
	host, port, _ := strings.Cut(of, ":")
	must(t, c.ReplicaOf(t.Context(), host, port).Err())
	eventually(t, "the replica is in step", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}
