// Package lazy tests that an application starts while its service is down.
package lazy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/natslock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/s3lock"
	_ "github.com/interlock-go/lock/zklock"
)

// bound is for what takes milliseconds, and half a second in a pause between two attempts, on a machine that is busy.
const bound = 5 * time.Second

func TestMain(m *testing.M) { provision.Main(m) }

// A client opens while its service is down, and locks soon after the service
// answers. A typo in the URL fails at once.
func TestServiceIsDown(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) *provision.Server{
		"redis": func(t *testing.T) *provision.Server {
			return provision.NewRedis(t, provision.AnyRedis, provision.Options{})
		},
		"postgres": func(t *testing.T) *provision.Server { return provision.NewPostgres(t, provision.Postgres18) },
		"etcd": func(t *testing.T) *provision.Server {
			return provision.NewEtcd(t, provision.AnyEtcd, provision.Options{})
		},
		"zookeeper": func(t *testing.T) *provision.Server { return provision.NewZooKeeper(t, provision.AnyZooKeeper) },
		"mysql": func(t *testing.T) *provision.Server {
			return provision.NewMySQL(t, provision.MySQL9, provision.Options{})
		},
		"memcached": func(t *testing.T) *provision.Server { return provision.NewMemcached(t, provision.Options{}) },
		"nats": func(t *testing.T) *provision.Server {
			return provision.NewNATS(t, provision.NATS2, provision.Options{})
		},
		"s3": func(t *testing.T) *provision.Server {
			return provision.NewS3(t, provision.VersityGW, provision.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			url := s.URL()
			if name == "postgres" {
				url = s.PostgresURL()
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			with := func(params string) string {
				if strings.Contains(url, "?") {
					return url + "&" + params
				}
				return url + "?" + params
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()

			began := time.Now()
			if _, err := lock.Open(ctx, with("lazy=true&tll=10s")); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("a typo in the URL: %v", err)
			}
			c, err := lock.Open(ctx, with("lazy=true&ttl=10s"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			if took := time.Since(began); took > bound {
				t.Errorf("both took %v, want at most %v", took, bound)
			}
			early := c.Capabilities().Name
			if err := c.Ping(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Ping of a service that is down: %v", err)
			} else {
				t.Log(err)
			}
			locked := make(chan time.Time, 1)
			var unlocked sync.WaitGroup
			defer unlocked.Wait() // before the client is closed
			unlocked.Go(func() {
				l, err := c.Mutex("k").Lock(ctx)
				locked <- time.Now()
				if err != nil {
					t.Error(err)
				} else if err := l.Unlock(ctx); err != nil {
					t.Error(err)
				}
			})
			if err := s.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			up := time.Now()
			took := (<-locked).Sub(up)
			t.Logf("locked %v after the service answered", took)
			if took > bound {
				t.Errorf("locked %v after the service answered, want at most %v", took, bound)
			}
			if late := c.Capabilities().Name; late != early {
				t.Errorf("the driver is %q before the service is up and %q afterwards", early, late)
			}
		})
	}
}
