package redislock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestSentinel(t *testing.T) {
	master, replica := replicated(t) // Sentinel asks a master for its replicas at once, and then only each ten seconds
	host, port, _ := strings.Cut(master, ":")
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	must(t, os.WriteFile(conf, []byte(fmt.Sprintf("sentinel monitor m %s %s 1\nsentinel down-after-milliseconds m 5000\nsentinel failover-timeout m 60000\n", host, port)), 0o600))
	sport := freePort()
	saddr, stop, err := startSentinel(sport, conf)
	if err != nil {
		missing(t, err)
	}
	defer stop()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: saddr})
	defer sentinel.Close()
	const limit = time.Minute // a sentinel that stood still does nothing for half of it
	within(t, limit, "the sentinel knows the replica", func() bool {
		r, _ := sentinel.Replicas(t.Context(), "m").Result()
		return len(r) == 1 && strings.Contains(r[0]["flags"], "slave") && r[0]["master-link-status"] == "ok"
	})
	b := openURL(t, "redis+sentinel://"+saddr+"/m/0")
	held, waits := request("k"), request("k")
	held.TTL, waits.TTL = 2*limit, 2*limit
	g := take(t, b, held)
	ch := queue(t.Context(), t, b, waits)
	within(t, limit, "the sentinel agrees", func() bool { return sentinel.Failover(t.Context(), "m").Err() == nil })
	promoted := client(t, replica)
	within(t, limit, "the replica is promoted", func() bool {
		return strings.Contains(promoted.Info(t.Context(), "replication").Val(), "role:master")
	})
	within(t, limit, "renewed at the new master", func() bool { return g.Renew(t.Context(), held.TTL) == nil })
	must(t, g.Release(t.Context()))
	g2 := getWithin(t, limit, ch)
	if g2.Token() <= g.Token() {
		t.Errorf("token %d after %d", g2.Token(), g.Token())
	}
	must(t, g2.Release(t.Context()))
}
