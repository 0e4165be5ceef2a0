package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/integration/faults"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// failover is a Redis whose master another server replaces. Clients learn addresses
// from it, so there are no proxies.
type failover struct {
	admins map[*provision.Server]*goredis.Client
	// master is the one that the service names now.
	master func(ctx context.Context) (*provision.Server, error)
}

func newFailover(t *testing.T, servers []*provision.Server) *failover {
	f := &failover{admins: map[*provision.Server]*goredis.Client{}}
	for _, s := range servers {
		c := goredis.NewClient(&goredis.Options{Addr: s.Addr(), ReadTimeout: time.Second})
		t.Cleanup(func() { _ = c.Close() })
		f.admins[s] = c
	}
	return f
}

// fault stops a master and, after another was promoted, starts it again as a replica.
func (f *failover) fault(name string, known []faults.Rule, fail func(context.Context, *provision.Server) error, back func(context.Context, *provision.Server) error) faults.Fault {
	return faults.Fault{Name: name, Known: known, Strike: func(ctx context.Context, st *faults.Strike) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		old, err := f.master(ctx)
		if err != nil {
			return err
		}
		st.Logf("%s: %s", name, old.Addr())
		if err := fail(ctx, old); err != nil {
			return err
		}
		err = until(ctx, func() error { return f.replaced(ctx, old) })
		st.Logf("another is master: %v", err)
		if err := errors.Join(err, back(ctx, old)); err != nil {
			return err
		}
		return until(ctx, func() error {
			info, err := f.admins[old].Info(ctx, "replication").Result()
			if err == nil && (!strings.Contains(info, "role:slave") || !strings.Contains(info, "master_link_status:up")) {
				err = fmt.Errorf("%s does not follow another", old.Addr())
			}
			return err
		})
	}}
}

func (f *failover) replaced(ctx context.Context, old *provision.Server) error {
	now, err := f.master(ctx)
	if err == nil && now == old {
		err = errors.New("the master is the same")
	}
	return err
}

// planned requests a failover until there is one: the servers cancel a failover that takes
// longer than some seconds.
func (f *failover) planned(request func(ctx context.Context, master *provision.Server) error) func(context.Context, *provision.Server) error {
	return func(ctx context.Context, master *provision.Server) error {
		return until(ctx, func() error {
			if f.replaced(ctx, master) == nil {
				return nil
			}
			if err := request(ctx, master); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
			defer cancel()
			return until(ctx, func() error { return f.replaced(ctx, master) })
		})
	}
}

// until repeats a request until it succeeds.
func until(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

func (f *failover) faults(known []faults.Rule, planned faults.Fault) []faults.Fault {
	return []faults.Fault{
		f.fault("master killed", known,
			func(_ context.Context, s *provision.Server) error { return s.Kill() },
			func(ctx context.Context, s *provision.Server) error { return s.Restart(ctx) }),
		f.fault("master frozen until replaced", known,
			func(_ context.Context, s *provision.Server) error { return s.Pause() },
			func(_ context.Context, s *provision.Server) error { return s.Resume() }),
		planned,
	}
}

func asItWas(context.Context, *provision.Server) error { return nil }

// ofAsynchrony are the rules that a failover may violate if the master does not wait for its
// replicas: a replica that lacks a grant grants the lock again (docs/backends/redis.md). Its
// tokens are still greater.
var ofAsynchrony = []faults.Rule{faults.Exclusion, faults.Model, faults.Fence, faults.Stolen}

func sentinelService(t *testing.T) *faults.Service {
	return sentinels(t, 2, ofAsynchrony, nil)
}

// waitService has one replica, so that the replica that has acknowledged is promoted.
func waitService(t *testing.T) *faults.Service {
	return sentinels(t, 1, nil, map[string]string{"wait_replicas": "1", "wait_timeout": "400ms"})
}

func sentinels(t *testing.T, replicas int, known []faults.Rule, params map[string]string) *faults.Service {
	set := provision.RedisSentinel(t, provision.AnyRedis, replicas)
	servers := append([]*provision.Server{set.Master}, set.Replicas...)
	f := newFailover(t, servers)
	sentinel := goredis.NewSentinelClient(&goredis.Options{Addr: set.Sentinels[0].Addr()})
	t.Cleanup(func() { _ = sentinel.Close() })
	f.master = func(ctx context.Context) (*provision.Server, error) {
		addr, err := sentinel.GetMasterAddrByName(ctx, set.MasterName).Result()
		if err != nil {
			return nil, err
		}
		for _, s := range servers {
			if len(addr) == 2 && s.Addr() == net.JoinHostPort(addr[0], addr[1]) {
				return s, nil
			}
		}
		return nil, fmt.Errorf("%v is none of the servers", addr)
	}
	planned := f.fault("failover planned", known, f.planned(func(ctx context.Context, _ *provision.Server) error {
		return sentinel.Failover(ctx, set.MasterName).Err()
	}), asItWas)
	all := map[string]string{"dial_timeout": "500ms", "read_timeout": "500ms"}
	for k, v := range params {
		all[k] = v
	}
	url := suite.WithParams("redis+sentinel://"+strings.Join(set.Addrs(), ",")+"/"+set.MasterName+"/0", all)
	return finish(&faults.Service{Faults: f.faults(known, planned)}, func([]string) string { return url })
}

// clusterService fails over one shard of three after another. A planned failover of a cluster
// loses nothing: the master stops until its replica has all data.
func clusterService(t *testing.T) *faults.Service {
	const masters = 3
	c := provision.RedisCluster(t, provision.AnyRedis, masters, 1)
	f := newFailover(t, c.Nodes)
	turn := 0
	shard := func() []*provision.Server {
		i := turn % masters
		return []*provision.Server{c.Nodes[i], c.Nodes[i+masters]}
	}
	f.master = func(ctx context.Context) (*provision.Server, error) {
		other := c.Nodes[(turn+1)%masters] // which is up, and in another shard
		nodes, err := f.admins[other].ClusterNodes(ctx).Result()
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(nodes) {
			field := strings.Fields(line) // id, address@bus, flags, …
			if len(field) < 3 || !strings.Contains(field[2], "master") || strings.Contains(field[2], "fail") {
				continue
			}
			for _, s := range shard() {
				if strings.HasPrefix(field[1], s.Addr()+"@") {
					return s, nil
				}
			}
		}
		return nil, errors.New("the shard has no master")
	}
	planned := f.fault("failover planned", nil, f.planned(func(ctx context.Context, master *provision.Server) error {
		for _, s := range shard() {
			if s != master {
				return f.admins[s].ClusterFailover(ctx).Err()
			}
		}
		return nil
	}), asItWas)
	all := f.faults(ofAsynchrony, planned)
	for i := range all {
		strike := all[i].Strike
		all[i].Strike = func(ctx context.Context, st *faults.Strike) error { turn++; return strike(ctx, st) }
	}
	url := suite.WithParams("redis+cluster://"+strings.Join(c.Addrs(), ","), map[string]string{"dial_timeout": "500ms", "read_timeout": "500ms"})
	return finish(&faults.Service{Faults: all}, func([]string) string { return url })
}
