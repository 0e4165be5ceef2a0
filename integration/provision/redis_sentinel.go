package provision

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Sentinel is a replicated Redis watched by three Sentinels, all local processes, with a quorum of two.
type Sentinel struct {
	MasterName string
	Master     *Server // at the start
	Replicas   []*Server
	Sentinels  []*Server
}

// Addrs returns the host:port of every Sentinel.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// RedisSentinel starts one master, the given number of replicas and three Sentinels from a local binary of the
// flavour, or from any with [AnyRedis], and returns when the Sentinels know each other and the replicas. A dead
// master is replaced within a few seconds. Everything ends with the test.
func RedisSentinel(t testing.TB, flavour string, replicas int) *Sentinel {
	t.Helper()
	LeaveOut(t, "Redis Sentinel")
	if replicas < 1 {
		t.Fatalf("provision: Sentinel with %d replicas: want at least 1", replicas)
	}
	s := &Sentinel{MasterName: "main"}
	quick := []string{"--repl-diskless-sync-delay", "0"}
	s.Master = NewRedis(t, flavour, Options{Binary: true, Args: quick})
	host, port, err := net.SplitHostPort(s.Master.addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for range replicas {
		replica := NewRedis(t, flavour, Options{Binary: true, Args: append(quick, "--replicaof", host, port)})
		s.Replicas = append(s.Replicas, replica)
		// Sentinel asks a master for its replicas at once, and then only each ten seconds.
		if err := until(ctx, func(ctx context.Context) error {
			return replica.do(ctx, func(r *redis.Client) error { return following(ctx, r) })
		}); err != nil {
			t.Fatalf("provision: Sentinel: replica %s: %v", replica.addr, err)
		}
	}
	k := sentinelKind(kindOfRedis(t, flavour), s.MasterName, host, port)
	for range 3 {
		s.Sentinels = append(s.Sentinels, newPrivate(t, k, Options{Binary: true}))
	}
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// WaitReady returns when every running Sentinel sees a healthy master, all replicas and the other Sentinels.
func (s *Sentinel) WaitReady(ctx context.Context) error {
	for _, sentinel := range s.Sentinels {
		if !sentinel.in.running() {
			continue
		}
		err := until(ctx, func(ctx context.Context) error {
			return sentinel.do(ctx, func(r *redis.Client) error {
				state, err := r.Do(ctx, "sentinel", "master", s.MasterName).Result()
				if err != nil {
					return err
				}
				fields := asMap(state)
				for name, want := range map[string]string{
					"flags": "master", "num-slaves": fmt.Sprint(len(s.Replicas)), "num-other-sentinels": fmt.Sprint(len(s.Sentinels) - 1),
				} {
					if fields[name] != want {
						return fmt.Errorf("%s is %q, want %q", name, fields[name], want)
					}
				}
				return nil
			})
		})
		if err != nil {
			return fmt.Errorf("sentinel %s is not ready: %w", sentinel.addr, err)
		}
	}
	return nil
}

// asMap reads the two forms in which RESP2 and RESP3 give a list of fields.
func asMap(reply any) map[string]string {
	m := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for name, value := range reply {
			m[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			m[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	return m
}

// sentinelKind is k run as a Sentinel, which wants its configuration in a file that it may rewrite.
func sentinelKind(k kind, name, host, port string) kind {
	k.url = func(addr string, _ Options) string { return "redis://" + addr }
	k.args = func(bind string, listen int, dir string, _ Options) []string {
		file := filepath.Join(dir, "sentinel.conf")
		config := strings.Join([]string{
			fmt.Sprintf("bind %s", bind),
			fmt.Sprintf("port %d", listen),
			"protected-mode no",
			fmt.Sprintf("dir %s", dir),
			fmt.Sprintf("sentinel monitor %s %s %s 2", name, host, port),
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000", name),
			fmt.Sprintf("sentinel failover-timeout %s 5000", name),
		}, "\n") + "\n"
		// A file that cannot be written shows in the server's own words when it does not start.
		_ = os.WriteFile(file, []byte(config), 0o600)
		return []string{file, "--sentinel"}
	}
	return k
}
