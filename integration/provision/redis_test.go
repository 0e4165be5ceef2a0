package provision

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisTLS(t *testing.T) {
	for _, flavour := range RedisFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			certs := TLS(t)
			s := NewRedis(t, flavour, Options{TLS: certs, Password: "secret"})
			try := func(config *tls.Config) error {
				o, err := redis.ParseURL(s.URL())
				must(t, err)
				o.TLSConfig, o.MaxRetries = config, -1
				c := redis.NewClient(o)
				defer c.Close()
				return c.Ping(t.Context()).Err()
			}
			must(t, try(certs.Client()))
			if err := try(certs.Stranger()); err == nil {
				t.Error("a client that trusts another authority was served")
			}
		})
	}
}

func TestRedisACL(t *testing.T) {
	for _, flavour := range RedisFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "users.acl")
			must(t, os.WriteFile(file, []byte("user default off\nuser admin on >secret ~* &* +@all\nuser reader on >word ~* +get\n"), 0o600))
			s := NewRedis(t, flavour, Options{Args: []string{"--aclfile", file}, Files: []string{file}, Username: "admin", Password: "secret"})
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "reader", Password: "word"})
			defer c.Close()
			if err := c.Get(t.Context(), "absent").Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("reader's GET: %v, want %v", err, redis.Nil)
			}
			if err := c.Set(t.Context(), "k", "v", 0).Err(); err == nil {
				t.Error("reader was allowed to SET")
			}
		})
	}
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := RedisCluster(t, AnyRedis, 3, 1)
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer r.Close()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		must(t, r.Set(t.Context(), key, "v", 0).Err())
	}
	must(t, c.Nodes[0].Kill())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// Asked at the server: a cluster client notices a failover only at its own next look.
	must(t, until(ctx, func(ctx context.Context) error {
		return c.Nodes[3].do(ctx, func(r *redis.Client) error {
			role, err := r.Do(ctx, "role").Slice()
			if err == nil && role[0] != "master" {
				err = fmt.Errorf("the replica's role is %v", role[0])
			}
			return err
		})
	}))
	must(t, c.Nodes[0].Restart(ctx))
	must(t, c.WaitReady(ctx))
}

func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	s := RedisSentinel(t, AnyRedis, 1)
	r := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
	defer r.Close()
	must(t, r.Set(t.Context(), "k", "v", 0).Err())
	must(t, s.Master.Kill())
	// a Sentinel that stood still fails nothing over for 30 s
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must(t, until(ctx, func(ctx context.Context) error { return r.Set(ctx, "k", "w", 0).Err() }))
	must(t, s.Master.Restart(ctx))
	must(t, s.WaitReady(ctx))
}
