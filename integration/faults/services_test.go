package faults_test

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	_ "github.com/interlock-go/lock/etcdlock"
	_ "github.com/interlock-go/lock/filelock"
	"github.com/interlock-go/lock/integration/faults"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/natslock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/redislock/redlock"
	_ "github.com/interlock-go/lock/s3lock"
	_ "github.com/interlock-go/lock/zklock"
)

// services are the drivers under test, each started for one test. TestFaults makes
// runs of all faults, or only of the faults of the service's servers.
var services = []struct {
	name      string
	start     func(t *testing.T) *faults.Service
	ownFaults bool
}{
	{"file", fileService, false},
	{"redis", redisService, false},
	{"redis, local hand-off", handOffService, true},
	{"redis sentinel", sentinelService, true},
	{"redis sentinel with wait", waitService, true},
	{"redis cluster", clusterService, true},
	{"redlock of 3", redlockService, false},
	{"etcd", etcdService, false},
	{"etcd of 3", etcdCluster, false},
	{"zookeeper", zookeeperService, false},
	{"zookeeper of 3", zookeeperEnsemble, false},
	{"postgres", postgresService, false},
	{"mariadb", mariadbService, false},
	{"mysql", mysqlService, false},
	{"memcached", memcachedService, false},
	{"nats", natsService, false},
	{"nats of 3", natsCluster, true},
	{"s3 versitygw", versityService, false},
	{"s3 minio", minioService, true},
}

// finish sets the fields that all services have. url returns the URL of a service for the
// addresses of its servers or of the proxies before them.
func finish(s *faults.Service, url func(addrs []string) string, upstreams ...string) *faults.Service {
	s.URL, s.Upstreams, s.Direct = url, upstreams, url(upstreams)
	s.Command, s.ClockCommand = faults.Self, clockCommand
	return s
}

func fileService(t *testing.T) *faults.Service {
	dir := (&url.URL{Scheme: "file", Path: t.TempDir()}).String()
	return finish(&faults.Service{}, func([]string) string { return dir })
}

// redisService and the services below have short timeouts of clients, so that a request into
// a black hole ends within a TTL. Servers that start a process or a session for each connection
// have more time for that: on a busy machine with two processors it takes more than half a
// second, and a client that gives up then connects again and again. Servers write before they
// answer and do not wait for the disk: the data survives the death of a process, and no test
// here cuts the power.
func redisService(t *testing.T) *faults.Service { return redisWith(t, nil) }

func handOffService(t *testing.T) *faults.Service {
	return redisWith(t, map[string]string{"local_hand_off": "true"})
}

func redisWith(t *testing.T, more map[string]string) *faults.Service {
	params := map[string]string{"dial_timeout": "500ms", "read_timeout": "500ms", "wait_timeout": "500ms"}
	maps.Copy(params, more)
	s := provision.NewRedis(t, provision.AnyRedis, provision.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "no"}})
	return finish(&faults.Service{Server: s, Faults: []faults.Fault{redisFull(t, s)}}, func(addrs []string) string {
		return suite.WithParams("redis://"+addrs[0]+"/0", params)
	}, s.Addr())
}

// redisFull is a server that has no room for another write.
func redisFull(t *testing.T, s *provision.Server) faults.Fault {
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	return faults.Fault{Name: "server full", Strike: func(ctx context.Context, st *faults.Strike) error {
		d := st.Length()
		st.Logf("server full for %v", d)
		if err := admin.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
			return err
		}
		st.Last(ctx, d)
		return admin.ConfigSet(context.WithoutCancel(ctx), "maxmemory", "0").Err()
	}}
}

// redlockService loses one node of three at a time.
func redlockService(t *testing.T) *faults.Service {
	var nodes []*provision.Server
	var addrs []string
	for range 3 {
		s := provision.NewRedis(t, provision.AnyRedis, provision.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "no"}})
		nodes, addrs = append(nodes, s), append(addrs, s.Addr())
	}
	turn := 0
	one := func(context.Context) (*provision.Server, error) { turn++; return nodes[turn%len(nodes)], nil }
	return finish(&faults.Service{Faults: []faults.Fault{faults.Frozen("node frozen", one), faults.Killed("node killed", one)}}, func(addrs []string) string {
		return suite.WithParams("redlock://"+strings.Join(addrs, ",")+"/0", map[string]string{"dial_timeout": "500ms", "read_timeout": "500ms", "durable": "true", "set": "faults"})
	}, addrs...)
}

func etcdURL(addrs []string) string {
	return suite.WithParams("etcd://"+strings.Join(addrs, ","), map[string]string{"dial_timeout": "1s"})
}

func etcdService(t *testing.T) *faults.Service {
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{})
	return finish(&faults.Service{Server: s}, etcdURL, s.Addr())
}

func etcdCluster(t *testing.T) *faults.Service {
	c := provision.EtcdCluster(t, provision.Etcd37, 3)
	leader := func(ctx context.Context) (*provision.Server, error) {
		i, err := c.Leader(ctx)
		if err != nil {
			return nil, err
		}
		return c.Nodes[i], nil
	}
	cut := faults.Fault{Name: "leader cut off", Strike: func(ctx context.Context, st *faults.Strike) error {
		i, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		d := st.Length()
		st.Logf("leader %d cut off for %v", i, d)
		c.Isolate(i)
		defer c.Rejoin()
		st.Last(ctx, d)
		return nil
	}}
	// A leader that was stopped for longer than leases had left revokes them when it continues,
	// although its successor has renewed them: it checks its leadership only if its own clock
	// has not ticked for a while (EtcdServer.ensureLeadership in 3.7).
	short, long := faults.Frozen("leader frozen", leader), faults.Frozen("leader frozen for long", leader)
	short.Most = time.Second // less than what a lease has left after each renewal
	long.Known = []faults.Rule{faults.Stolen, faults.Exclusion, faults.Model, faults.Fence}
	return finish(&faults.Service{Faults: []faults.Fault{short, long, faults.Killed("leader killed", leader), cut}}, etcdURL, c.Addrs()...)
}

func zookeeperURL(addrs []string) string {
	return suite.WithParams("zk://"+strings.Join(addrs, ","), map[string]string{"dial_timeout": "1s"})
}

func zookeeperService(t *testing.T) *faults.Service {
	s := provision.NewZooKeeper(t, provision.AnyZooKeeper, "forceSync=no")
	return finish(&faults.Service{Server: s}, zookeeperURL, s.Addr())
}

func zookeeperEnsemble(t *testing.T) *faults.Service {
	e := provision.ZooKeeperEnsemble(t, provision.ZooKeeper38, 3, "forceSync=no")
	leader := func(ctx context.Context) (*provision.Server, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		i, err := e.Leader(ctx)
		if err != nil {
			return nil, err
		}
		return e.Nodes[i], nil
	}
	return finish(&faults.Service{Faults: []faults.Fault{faults.Frozen("leader frozen", leader), faults.Killed("leader killed", leader)}}, zookeeperURL, e.Addrs()...)
}

func postgresService(t *testing.T) *faults.Service {
	s := provision.NewPostgres(t, provision.AnyPostgres, "fsync=off")
	return finish(&faults.Service{Server: s}, func(addrs []string) string {
		return suite.WithParams("postgres://postgres@"+addrs[0]+"/postgres", map[string]string{"sslmode": "disable", "dial_timeout": "2s", "timeout": "1s"})
	}, s.Addr())
}

func mariadbService(t *testing.T) *faults.Service { return mysqlFlavour(t, provision.AnyMariaDB) }

func mysqlService(t *testing.T) *faults.Service {
	provision.LeaveOut(t, "faults of mysql") // the driver is that of MariaDB
	return mysqlFlavour(t, provision.MySQL9)
}

func mysqlFlavour(t *testing.T, flavour string) *faults.Service {
	s := provision.NewMySQL(t, flavour, provision.Options{Args: []string{"--innodb-flush-log-at-trx-commit=2"}})
	// A crowd without rests takes more of the server than a processor, and then the renewals come too late.
	return finish(&faults.Service{Server: s, Share: 16}, func(addrs []string) string {
		return suite.WithParams("mysql://root@"+addrs[0]+"/"+provision.MySQLDatabase, map[string]string{"dial_timeout": "2s", "timeout": "1s"})
	}, s.Addr())
}

// memcachedService loses all locks when its server ends.
func memcachedService(t *testing.T) *faults.Service {
	s := provision.NewMemcached(t, provision.Options{})
	server := func(context.Context) (*provision.Server, error) { return s, nil }
	killed := faults.Killed("server killed", server)
	killed.Known = []faults.Rule{faults.Stolen, faults.Exclusion, faults.Model, faults.Fence}
	return finish(&faults.Service{Faults: []faults.Fault{faults.Frozen("server frozen", server), killed}}, func(addrs []string) string {
		return suite.WithParams("memcached://"+addrs[0], map[string]string{"timeout": "500ms"})
	}, s.Addr())
}

func natsService(t *testing.T) *faults.Service {
	s := provision.NewNATS(t, provision.NATS2, provision.Options{})
	return finish(&faults.Service{Server: s}, func(addrs []string) string {
		return suite.WithParams("nats://"+addrs[0], map[string]string{"timeout": "500ms"})
	}, s.Addr())
}

func natsCluster(t *testing.T) *faults.Service {
	c := provision.NATSCluster(t, provision.NATS2, 3, provision.Options{})
	leader := func(ctx context.Context) (*provision.Server, error) {
		i, err := c.Leader(ctx, "locks")
		if err != nil {
			return nil, err
		}
		return c.Nodes[i], nil
	}
	turn := 0
	one := func(context.Context) (*provision.Server, error) { turn++; return c.Nodes[turn%len(c.Nodes)], nil }
	return finish(&faults.Service{Faults: []faults.Fault{
		faults.Frozen("leader frozen", leader), faults.Killed("leader killed", leader), faults.Killed("node killed", one),
	}}, func(addrs []string) string {
		return suite.WithParams("nats://"+strings.Join(addrs, ","), map[string]string{"timeout": "500ms", "replicas": "3"})
	}, c.Addrs()...)
}

func versityService(t *testing.T) *faults.Service { return s3Service(t, provision.VersityGW) }

func minioService(t *testing.T) *faults.Service { return s3Service(t, provision.MinIO) }

func s3Service(t *testing.T, flavour string) *faults.Service {
	s := provision.NewS3(t, flavour, provision.Options{})
	return finish(&faults.Service{Faults: faults.Servers(s)}, func(addrs []string) string {
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("endpoint", "http://"+addrs[0])
		q.Set("timeout", "1s")
		q.Set("poll", "250ms")
		u.RawQuery = q.Encode()
		return u.String()
	}, s.Addr())
}
