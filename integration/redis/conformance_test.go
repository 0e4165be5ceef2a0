package redis_test

import (
	"context"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// durable makes a server keep its locks over a restart. The server writes before it replies
// and does not wait for the disk: written data survives the death of the process.
var durable = []string{"--appendonly", "yes", "--appendfsync", "no"}

func TestConformanceStandalone(t *testing.T) {
	for _, flavour := range provision.RedisFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewRedis(t, flavour, provision.Options{Args: durable})
			admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
			t.Cleanup(func() { _ = admin.Close() })
			conformance.Run(t, harness(t, s, admin), conformance.RequireHooks(), suite.Keep(t))
		})
	}
}

func TestConformanceSentinel(t *testing.T) {
	s := provision.RedisSentinel(t, provision.AnyRedis, 1)
	url := "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "/" + s.MasterName
	conformance.Run(t, overURL("redis behind Sentinel", url), suite.Keep(t))
}

func TestConformanceCluster(t *testing.T) {
	c := provision.RedisCluster(t, provision.AnyRedis, 3, 0)
	conformance.Run(t, overURL("redis cluster", "redis+cluster://"+strings.Join(c.Addrs(), ",")), suite.Keep(t))
}

// overURL returns a harness that uses nothing but a URL.
func overURL(name, url string) conformance.Harness {
	return conformance.Harness{
		Name: name,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, url) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, suite.WithParams(url, map[string]string{"prefix": prefix}))
		},
		Budget: budget,
		Worker: conformance.Self(url),
	}
}

func TestConformanceLocalHandOff(t *testing.T) {
	provision.LeaveOut(t, "local hand-off")
	s := provision.NewRedis(t, provision.AnyRedis, provision.Options{Args: durable})
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	conformance.Run(t, harness(t, s, admin), suite.HandOff()...)
}

func TestConformanceCrowd(t *testing.T) {
	provision.LeaveOut(t, "ten thousand readers")
	s := provision.NewRedis(t, provision.AnyRedis, provision.Options{Args: durable})
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	conformance.Run(t, harness(t, s, admin), suite.Crowd()...)
}
