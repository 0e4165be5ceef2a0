package redislock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
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

// A cluster serves locks in slots of all masters, with one subscribed connection to each.
func TestCluster(t *testing.T) {
	addrs := startCluster(t)
	url := "redis+cluster://" + strings.Join(addrs, ",")
	b, b2 := openURL(t, url), openURL(t, url)
	names := []string{"a", "b", "c", "d", "{x}", "a}b{c", "%", "unicode ü"}
	for _, name := range names {
		g := take(t, b, request(name))
		c1, c2 := enqueue(t.Context(), t, b2, request(name)), enqueue(t.Context(), t, b, request(name))
		must(t, g.Release(t.Context()))
		g1 := get(t, c1)
		if left := time.Until(g1.Until()); left > backend.MaxProvisionalTTL {
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
	if _, listeners := subscribed(b); listeners == 0 || listeners > 3 {
		t.Errorf("%d subscribing connections to 3 servers", listeners)
	}

	listed := map[string]int{}
	held := takeMany(t, b, 30)
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

	b.svc.subs.mu.Lock()
	all := slices.Collect(maps.Values(b.svc.subs.channels))
	b.svc.subs.mu.Unlock()
	for _, c := range all {
		c.expire()
	}
	if channels, listeners := subscribed(b); channels+listeners != 0 {
		t.Errorf("%d channels and %d listeners are left that nothing uses", channels, listeners)
	}
}

// subscribed returns how many channels and listeners a backend has.
func subscribed(b *Backend) (channels, listeners int) {
	b.svc.subs.mu.Lock()
	defer b.svc.subs.mu.Unlock()
	return len(b.svc.subs.channels), len(b.svc.subs.listeners)
}

// A cluster serves a user with the documented permissions, and a client of the caller with its defaults. It is not
// taken for a standalone server.
func TestClusterClients(t *testing.T) {
	addrs := startCluster(t)
	for _, a := range addrs {
		args := []any{"acl", "setuser", "app", "reset", "on", ">app-secret"}
		for f := range strings.FieldsSeq(aclRules) {
			args = append(args, f)
		}
		must(t, client(t, a).Do(t.Context(), append(args, "+cluster|slots", "+cluster|shards")...).Err())
	}
	limited := openURL(t, "redis+cluster://app:app-secret@"+strings.Join(addrs, ","))
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer c.Close()
	theirs, err := New(c)
	must(t, err)
	defer closeBackend(t, theirs)
	for _, b := range []*Backend{limited, theirs} {
		g := take(t, b, request("z"))
		ch := enqueue(t.Context(), t, b, request("z"))
		must(t, g.Release(t.Context()))
		must(t, get(t, ch).Release(t.Context()))
	}
	if err := openError(t, "redis://"+addrs[0]); !strings.Contains(err.Error(), "redis+cluster") {
		t.Errorf("as standalone: %v", err)
	}
}
