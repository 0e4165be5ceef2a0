package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
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
	admin := client(t, saddr)
	sentinelRules(t, admin, sentinelACL)
	url := "redis+sentinel://" + saddr + "/m/0?sentinel_user=app&sentinel_password=app-secret"
	b := openURL(t, url)
	held, waits := request("k"), request("k")
	held.TTL, waits.TTL = 2*limit, 2*limit
	g := take(t, b, held)
	ch := enqueue(t.Context(), t, b, waits)
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
	if denied := deniedBySentinel(t, admin); len(denied) > 0 {
		t.Errorf("denied to the user of the sentinels: %v", denied)
	}
	for _, rule := range strings.Fields(sentinelACL)[3:] {
		sentinelRules(t, admin, strings.Replace(sentinelACL, " "+rule, "", 1))
		u, err := backend.ParseURL(url)
		must(t, err)
		if o, err := backend.Open(t.Context(), u); err == nil {
			within(t, limit, "the sentinel denies "+rule, func() bool { return len(deniedBySentinel(t, admin)) > 0 })
			must(t, o.Close(t.Context()))
		} else if strings.Contains(err.Error(), "app-secret") || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("without %s: %v", rule, err)
		}
	}
}

// sentinelACL are the rules of a sentinel's user in the documentation, Permissions.
const sentinelACL = "resetkeys resetchannels -@all +subscribe +sentinel|get-master-addr-by-name +sentinel|sentinels &+switch-master &+replica-reconf-done"

func sentinelRules(t *testing.T, admin *redis.Client, rules string) {
	t.Helper()
	args := []any{"acl", "setuser", "app", "reset", "on", ">app-secret"}
	for f := range strings.FieldsSeq(rules) {
		args = append(args, f)
	}
	must(t, admin.Do(t.Context(), args...).Err())
	must(t, admin.Do(t.Context(), "acl", "log", "reset").Err())
}

// deniedBySentinel returns what the sentinel has denied since the last sentinelRules.
func deniedBySentinel(t *testing.T, admin *redis.Client) (all []any) {
	t.Helper()
	log, err := admin.Do(t.Context(), "acl", "log").Slice()
	must(t, err)
	for _, entry := range log {
		if e, ok := entry.(map[any]any); ok {
			all = append(all, e["object"])
		}
	}
	return all
}

// Open ends with its context while a sentinel does not answer.
func TestOpenEndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var conns sync.WaitGroup
	closed := make(chan struct{})
	conns.Go(func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				<-closed
				_ = c.Close()
			})
		}
	})
	defer conns.Wait()
	defer silent.Close()
	defer close(closed)
	u, err := backend.ParseURL("redis+sentinel://" + silent.Addr().String() + "/m?dial_timeout=1m&read_timeout=1m")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := Open(ctx, u)
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open: %v, want that its deadline has passed", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Open goes on after its deadline")
	}
}
