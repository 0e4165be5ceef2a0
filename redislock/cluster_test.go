package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// startCluster runs three masters and returns their addresses.
func startCluster(t *testing.T) []string {
	t.Helper()
	var addrs []string
	var nodes []*redis.Client
	for i := range 3 {
		addr, stop, err := start(freePort(), "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		if err != nil {
			missing(t, err)
		}
		t.Cleanup(stop)
		addrs = append(addrs, addr)
		nodes = append(nodes, client(t, addr))
		first, last := i*5462, min((i+1)*5462-1, 16383)
		must(t, nodes[i].ClusterAddSlotsRange(t.Context(), first, last).Err())
		must(t, nodes[i].Do(t.Context(), "cluster", "set-config-epoch", i+1).Err())
	}
	for _, n := range nodes[1:] {
		host, port, _ := strings.Cut(addrs[0], ":")
		must(t, n.ClusterMeet(t.Context(), host, port).Err())
	}
	eventually(t, "the cluster is up", func() bool {
		for _, n := range nodes {
			s := n.ClusterInfo(t.Context()).Val()
			if !strings.Contains(s, "cluster_state:ok") || !strings.Contains(s, "cluster_known_nodes:3") {
				return false
			}
		}
		return true
	})
	return addrs
}

func TestCluster(t *testing.T) {
	addrs := startCluster(t)
	url := "redis+cluster://" + strings.Join(addrs, ",")
	b, b2 := openURL(t, url), openURL(t, url)
	names := []string{"a", "b", "c", "d", "{x}", "a}b{c", "%", "unicode ü"}

	for _, name := range names {
		g := take(t, b, request(name))
		c1, c2 := queue(t.Context(), t, b2, request(name)), queue(t.Context(), t, b, request(name))
		must(t, g.Release(t.Context()))
		g1 := get(t, c1)
		if left := time.Until(g1.Until()); left > protocol.ProvisionalTTL {
			t.Errorf("%q was not pushed: %v left", name, left)
		}
		must(t, g1.Renew(t.Context(), 5*time.Second))
		if _, err := b.Break(t.Context(), name, ""); err != nil {
			t.Error(err)
		}
		must(t, get(t, c2).Release(t.Context()))
	}
	var wg sync.WaitGroup
	for i := range 40 { // several keys of a slot's node on one connection
		wg.Go(func() {
			g, err := []*Backend{b, b2}[i%2].Acquire(context.Background(), request(names[i%4]))
			if err == nil {
				err = g.Release(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.subs.mu.Lock()
	if n := len(b.subs.listeners); n > 3 {
		t.Errorf("%d subscribing connections to 3 servers", n)
	}
	b.subs.mu.Unlock()

	listed := map[string]int{}
	var held []backend.Grant
	for i := range 30 {
		held = append(held, take(t, b, request(fmt.Sprint("n", i))))
	}
	must(t, b.List(t.Context(), func(i backend.Info) bool { listed[i.Name]++; return true }))
	if len(listed) != 30 {
		t.Errorf("listed %v", listed)
	}
	for i, err := range b.RenewBatch(t.Context(), batchOf(time.Minute, held...)) {
		if until := held[i].Until(); !errors.Is(err, errors.ErrUnsupported) || time.Until(until) > 10*time.Second {
			t.Fatalf("a batch in a cluster: %v, until %v", err, until)
		}
	}
	for _, g := range held {
		must(t, g.Release(t.Context()))
	}
	must(t, b.Ping(t.Context()))

	// an unused channel is given up
	for name, c := range b.subs.channels {
		_ = name
		c.expire()
	}
	b.subs.mu.Lock()
	if len(b.subs.channels)+len(b.subs.listeners) != 0 {
		t.Errorf("%d channels, %d listeners left", len(b.subs.channels), len(b.subs.listeners))
	}
	b.subs.mu.Unlock()

	// a slot moves while it is waited for
	g := take(t, b, request("a"))
	ch := queue(t.Context(), t, b2, request("a"))
	released, taken := make(chan error, 1), make(chan acquired, 2)
	moveSlot(t, addrs, b.proc.Keys("a").Lock, func() {
		// some of the keys that its scripts name are at neither server
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, MaxRetries: -1})
		defer c.Close()
		k := b.proc.Keys("a")
		_, err := c.EvalSha(t.Context(), protocol.Renew.SHA, []string{k.Lock, k.Queue, k.Fence, k.Tombstone("x")}, b.proc.ChannelPrefix(), "x", 1000).Result()
		if !redis.IsTryAgainError(err) {
			t.Errorf("in the middle of a migration: %v", err)
		}
		w := request("a")
		go func() {
			g, err := b.Acquire(context.Background(), w)
			taken <- acquired{Grant: g, Err: err}
		}()
		must(t, b.srv.Client.Del(t.Context(), k.Queue).Err()) // the waiter finds back
		must(t, g.Renew(t.Context(), time.Minute))
	}, func() { // the lock is here, and what stands beside it is there
		must(t, b.srv.Client.ScriptFlush(t.Context()).Err())
		must(t, g.Renew(t.Context(), 2*time.Minute))
		if left := time.Until(g.Until()); left < time.Minute {
			t.Errorf("renewed for %v", left)
		}
		must(t, g.(*grant).Keep(t.Context(), 10*time.Second))
		go func() { released <- g.Release(context.Background()) }()
		select {
		case err := <-released:
			t.Errorf("released in the middle: %v", err)
		case <-time.After(50 * time.Millisecond): // that it does not end cannot be waited for
		}
	})
	must(t, <-released)
	go func() { taken <- <-ch }()
	for range 2 { // in the order in which they found back
		must(t, get(t, taken).Release(t.Context()))
	}

	// a share is renewed while its keys are at one server, and as soon as they are again
	reader := take(t, b, shareRequest("s", backend.Reader))
	renewed := make(chan error, 1)
	moveSlot(t, addrs, b.proc.Keys("s").Lock, func() {
		must(t, reader.Renew(t.Context(), time.Minute))
	}, func() {
		go func() { renewed <- reader.Renew(context.Background(), 2*time.Minute) }()
		select {
		case err := <-renewed:
			t.Errorf("renewed between two servers: %v", err)
		case <-time.After(50 * time.Millisecond): // that it does not end cannot be waited for
		}
	})
	must(t, <-renewed)
	if left := time.Until(reader.Until()); left < time.Minute {
		t.Errorf("renewed for %v", left)
	}
	must(t, reader.Release(t.Context()))

	// a client of the caller, with its defaults, and a user with the least permissions
	for _, a := range addrs {
		args := []any{"acl", "setuser", "app", "reset", "on", ">app-secret", "+cluster|slots", "+cluster|shards"}
		for f := range strings.FieldsSeq(aclRules) {
			args = append(args, f)
		}
		must(t, client(t, a).Do(t.Context(), append(args, "+cluster|slots")...).Err())
	}
	limited := openURL(t, "redis+cluster://app:app-secret@"+strings.Join(addrs, ","))
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer c.Close()
	theirs, err := New(c)
	must(t, err)
	defer closeBackend(t, theirs)
	for _, b := range []*Backend{limited, theirs} {
		g := take(t, b, request("z"))
		ch := queue(t.Context(), t, b, request("z"))
		must(t, g.Release(t.Context()))
		must(t, get(t, ch).Release(t.Context()))
	}

	u, err := backend.ParseURL("redis://" + addrs[0])
	must(t, err)
	if _, err := backend.Open(t.Context(), u); err == nil || !strings.Contains(err.Error(), "redis+cluster") {
		t.Errorf("as standalone: %v", err)
	}
}

// moveSlot migrates the slot of key, with its keys, to another master. It stops
// before any of them moved, and when key itself has moved.
func moveSlot(t *testing.T, addrs []string, key string, before, midway func()) {
	t.Helper()
	c := client(t, addrs[0])
	slot := int(c.ClusterKeySlot(t.Context(), key).Val())
	from := slot / 5462
	to := (from + 1) % 3
	src, dst := client(t, addrs[from]), client(t, addrs[to])
	id := func(c *redis.Client) string { return c.Do(t.Context(), "cluster", "myid").Val().(string) }
	srcID, dstID := id(src), id(dst)
	must(t, dst.Do(t.Context(), "cluster", "setslot", slot, "importing", srcID).Err())
	must(t, src.Do(t.Context(), "cluster", "setslot", slot, "migrating", dstID).Err())
	host, port, _ := strings.Cut(addrs[to], ":")
	move := func(keys ...string) {
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		must(t, src.Do(t.Context(), args...).Err())
	}
	before()
	move(key)
	midway()
	for {
		ks := src.ClusterGetKeysInSlot(t.Context(), slot, 100).Val()
		if len(ks) == 0 {
			break
		}
		move(ks...)
	}
	for _, a := range []int{to, from, 3 - to - from} {
		must(t, client(t, addrs[a]).Do(t.Context(), "cluster", "setslot", slot, "node", dstID).Err())
	}
}
