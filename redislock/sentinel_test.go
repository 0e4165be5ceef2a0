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
	master := private(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(master, ":")
	replica := private(t, "--replicaof", host+" "+port)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	must(t, os.WriteFile(conf, []byte(fmt.Sprintf("sentinel monitor m %s %s 1\nsentinel down-after-milliseconds m 500\nsentinel failover-timeout m 2000\n", host, port)), 0o600))
	sport := freePort()
	saddr, stop, err := startSentinel(sport, conf)
	if err != nil {
		missing(t, err)
	}
	defer stop()
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: saddr})
	defer sentinel.Close()
	eventually(t, "the sentinel knows the replica", func() bool {
		r, _ := sentinel.Replicas(t.Context(), "m").Result()
		return len(r) == 1 && strings.Contains(r[0]["flags"], "slave") && r[0]["master-link-status"] == "ok"
	})
	b := openURL(t, "redis+sentinel://"+saddr+"/m/0")
	g := take(t, b, request("k"))
	ch := queue(t, t.Context(), b, request("k"))
	must(t, sentinel.Failover(t.Context(), "m").Err())
	eventually(t, "the replica is promoted", func() bool {
		return strings.Contains(client(t, replica).Info(t.Context(), "replication").Val(), "role:master")
	})
	eventually(t, "renewed at the new master", func() bool { return g.Renew(t.Context(), 10*time.Second) == nil })
	must(t, g.Release(t.Context()))
	g2 := get(t, ch)
	if g2.Token() <= g.Token() {
		t.Errorf("token %d after %d", g2.Token(), g.Token())
	}
	must(t, g2.Release(t.Context()))
}
