package redislock

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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
