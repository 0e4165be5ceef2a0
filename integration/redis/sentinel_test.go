package redis_test

import (
	"context"
	"net"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/integration/provision"
)

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	set := provision.RedisSentinel(t, provision.AnyRedis, 2)
	sentinel := goredis.NewSentinelClient(&goredis.Options{Addr: set.Sentinels[0].Addr()})
	t.Cleanup(func() { _ = sentinel.Close() })
	servers := append([]*provision.Server{set.Master}, set.Replicas...)
	s := &service{
		t: t, url: "redis+sentinel://" + strings.Join(set.Addrs(), ",") + "/" + set.MasterName + "/0" + shortParams, copy: len(set.Replicas),
		master: func() *provision.Server {
			addr, err := sentinel.GetMasterAddrByName(t.Context(), set.MasterName).Result()
			if err != nil || len(addr) != 2 {
				return nil
			}
			for _, server := range servers {
				if server.Addr() == net.JoinHostPort(addr[0], addr[1]) {
					return server
				}
			}
			return nil
		},
		channels: func(string) string { return "lock:@*" },
		count: func(ctx context.Context, admin *goredis.Client, p string) *goredis.StringSliceCmd {
			return admin.PubSubChannels(ctx, p)
		},
	}
	ready := func() {
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		must(t, set.WaitReady(ctx))
	}
	s.failover("planned", false, func(*provision.Server) {
		eventually(t, "the Sentinel agrees", func() bool { return sentinel.Failover(t.Context(), set.MasterName).Err() == nil })
	})
	ready()
	var paused *provision.Server
	s.failover("paused", true, func(m *provision.Server) { paused = m; must(t, m.Pause()) })
	must(t, paused.Resume())
	ready()
	s.failover("killed", true, func(m *provision.Server) { must(t, m.Kill()) })
}
