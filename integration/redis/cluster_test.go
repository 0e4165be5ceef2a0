package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/redislock"
)

// shard is the first master of a cluster and its replica, in either role.
type shard struct {
	t    *testing.T
	c    *provision.Cluster
	both [2]*provision.Server
}

// master returns the node of the two that a third node reports as master.
func (s *shard) master() *provision.Server {
	nodes, err := adminOf(s.t, s.c.Nodes[1].Addr()).ClusterNodes(s.t.Context()).Result()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.Contains(f[2], "master") || strings.Contains(f[2], "fail") {
			continue
		}
		for _, server := range s.both {
			if strings.HasPrefix(f[1], server.Addr()+"@") {
				return server
			}
		}
	}
	return nil
}

func (s *shard) other(server *provision.Server) *provision.Server {
	if server == s.both[0] {
		return s.both[1]
	}
	return s.both[0]
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := provision.RedisCluster(t, provision.AnyRedis, 3, 1)
	sh := &shard{t: t, c: c, both: [2]*provision.Server{c.Nodes[0], c.Nodes[3]}}
	s := &service{
		t: t, url: "redis+cluster://" + strings.Join(c.Addrs(), ",") + shortParams, copy: 1,
		master:   sh.master,
		channels: func(name string) string { return "{" + redislock.Key("lock", name) + "}:@*" },
		count: func(ctx context.Context, admin *goredis.Client, p string) *goredis.StringSliceCmd {
			return admin.PubSubShardChannels(ctx, p)
		},
	}
	s.migration(c, nameIn(t, c, "moved"))
	s.failover(nameIn(t, c, "planned"), false, func(m *provision.Server) {
		replica := adminOf(t, sh.other(m).Addr())
		var asked time.Time
		eventually(t, "the replica takes over", func() bool {
			if now := sh.master(); now != nil && now != m {
				return true
			}
			// refused while it has no link to the others, and expires after 5 s
			if time.Since(asked) > 6*time.Second && replica.ClusterFailover(t.Context()).Err() == nil {
				asked = time.Now()
			}
			return false
		})
	})
	var paused *provision.Server
	s.failover(nameIn(t, c, "paused"), true, func(m *provision.Server) { paused = m; must(t, m.Pause()) })
	must(t, paused.Resume())
	former := adminOf(t, paused.Addr())
	eventually(t, "the former master knows that it is none any more", func() bool { // else it would grant what is then lost
		return strings.Contains(former.Info(t.Context(), "replication").Val(), "role:slave")
	})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	must(t, c.WaitReady(ctx))
	s.failover(nameIn(t, c, "killed"), true, func(m *provision.Server) { must(t, m.Kill()) })
}

// nameIn returns a name whose locks in a scene are all in the first shard.
func nameIn(t *testing.T, c *provision.Cluster, what string) string {
	t.Helper()
	admin := adminOf(t, c.Nodes[1].Addr())
	in := func(name string) bool {
		return admin.ClusterKeySlot(t.Context(), redislock.Key("lock", name)).Val() < 16384/3
	}
	for i := 0; ; i++ {
		name := fmt.Sprint(what, i)
		if in(name) && in(name+"/short") && in(name+"/short/0") && in(name+"/0") && in(name+"/1") && in("{"+name+"}") {
			return name
		}
	}
}

// A migration of a slot that takes longer than a lease costs neither the lease nor the
// waiters their place, although the keys are on two servers.
func (s *service) migration(c *provision.Cluster, name string) {
	t, ctx := s.t, s.t.Context()
	const ttl = 6 * time.Second
	lease := tryLock(t, open(t, s.url+"&wait_replicas=1&wait_timeout=500ms"), name, lock.WithTTL(ttl))
	queue := make(chan *lock.Lease, 1)
	if !s.wait(name, queue) {
		t.Fatalf("%s: granted while it is held", name)
	}

	key := redislock.Key("lock", name)
	from, to := adminOf(t, c.Nodes[0].Addr()), adminOf(t, c.Nodes[1].Addr())
	slot := from.ClusterKeySlot(ctx, key).Val()
	setslot := func(at *goredis.Client, args ...any) {
		must(t, at.Do(ctx, append([]any{"cluster", "setslot", slot}, args...)...).Err())
	}
	id := func(at *goredis.Client) string { return at.Do(ctx, "cluster", "myid").Val().(string) }
	setslot(to, "importing", id(from))
	setslot(from, "migrating", id(to))
	host, port, err := net.SplitHostPort(c.Nodes[1].Addr())
	must(t, err)
	move := func(key string) { must(t, from.Migrate(ctx, host, port, key, 0, 5*time.Second).Err()) }
	move(key)
	<-time.After(ttl + time.Second) // as long as the migration takes
	if err := errors.Join(lease.Err(), lease.Check(ctx)); err != nil {
		t.Errorf("while its slot moves: %v", err)
	}
	for _, k := range from.ClusterGetKeysInSlot(ctx, int(slot), 100).Val() {
		move(k)
	}
	for _, node := range []*goredis.Client{to, from, adminOf(t, c.Nodes[2].Addr())} {
		setslot(node, "node", id(to))
	}
	must(t, lease.Unlock(ctx))
	must(t, s.next(queue).Unlock(ctx))
}
