package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster of local processes.
type Cluster struct {
	Nodes   []*Server // the first so many masters, then their replicas (roles change with a failover)
	Masters int
}

// Addrs returns the host:port of every node.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// RedisCluster starts a cluster from a local binary of the flavour, or from any with [AnyRedis], and returns when all
// its nodes say that it is whole. With replicas it fails over within a few seconds. It ends with the test.
func RedisCluster(t testing.TB, flavour string, masters, replicasPerMaster int) *Cluster {
	t.Helper()
	LeaveOut(t, "Redis Cluster")
	if masters < 3 || replicasPerMaster < 0 {
		t.Fatalf("provision: cluster of %d masters with %d replicas each: want at least 3 masters and 0 replicas", masters, replicasPerMaster)
	}
	c := &Cluster{Masters: masters}
	timeout := "2000"
	if replicasPerMaster == 0 {
		timeout = "30000" // no replica could take over: a pause of the machine must not make the cluster refuse requests
	}
	// The bus has a port of its own; by default it is at +10000, which may not exist or be taken.
	for _, bus := range ports(t, masters*(1+replicasPerMaster)) {
		c.Nodes = append(c.Nodes, NewRedis(t, flavour, Options{Binary: true, Args: []string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", timeout,
			"--cluster-port", strconv.Itoa(bus.port), "--repl-diskless-sync-delay", "0",
		}}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := c.join(ctx); err != nil {
		t.Fatalf("provision: make a cluster: %v", err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// join does what redis-cli --cluster create does, on ports of our choice.
func (c *Cluster) join(ctx context.Context) error {
	ids := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		err := node.do(ctx, func(r *redis.Client) error {
			var err error
			if ids[i], err = r.Do(ctx, "cluster", "myid").Text(); err != nil || i >= c.Masters {
				return err
			}
			if err := r.ClusterAddSlotsRange(ctx, i*slots/c.Masters, (i+1)*slots/c.Masters-1).Err(); err != nil {
				return err
			}
			// Different from the start, so that the nodes need not settle who is older.
			return r.Do(ctx, "cluster", "set-config-epoch", i+1).Err()
		})
		if err != nil {
			return err
		}
	}
	for _, node := range c.Nodes[1:] {
		if err := c.Nodes[0].do(ctx, func(r *redis.Client) error {
			host, port, err := net.SplitHostPort(node.addr)
			if err != nil {
				return err
			}
			return r.Do(ctx, "cluster", "meet", host, port, busPort(node)).Err()
		}); err != nil {
			return err
		}
	}
	for i, node := range c.Nodes[c.Masters:] {
		// A node can follow a master only after gossip has announced that master to it.
		if err := until(ctx, func(ctx context.Context) error {
			return node.do(ctx, func(r *redis.Client) error { return r.ClusterReplicate(ctx, ids[i%c.Masters]).Err() })
		}); err != nil {
			return err
		}
	}
	return nil
}

func busPort(node *Server) string {
	args := node.options.Args
	for i, arg := range args {
		if arg == "--cluster-port" {
			return args[i+1]
		}
	}
	return ""
}

// WaitReady returns when every running node says that the cluster is whole, knows all nodes, and its replicas follow.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, node := range c.Nodes {
		if !node.in.running() {
			continue
		}
		err := until(ctx, func(ctx context.Context) error {
			return node.do(ctx, func(r *redis.Client) error {
				info, err := r.ClusterInfo(ctx).Result()
				if err != nil {
					return err
				}
				for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes))} {
					if !strings.Contains(info, want+"\r\n") {
						return fmt.Errorf("want %s in\n%s", want, info)
					}
				}
				return following(ctx, r)
			})
		})
		if err != nil {
			return fmt.Errorf("cluster node %s is not ready: %w", node.addr, err)
		}
	}
	return nil
}

// following returns an error from a replica that has no link to its master.
func following(ctx context.Context, r *redis.Client) error {
	info, err := r.Info(ctx, "replication").Result()
	if err == nil && strings.Contains(info, "role:slave") && !strings.Contains(info, "master_link_status:up") {
		err = errors.New("the replica does not follow its master yet")
	}
	return err
}

// do runs commands on one connection to the server, for at most a second or two.
func (s *Server) do(ctx context.Context, commands func(*redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := redisClient(ctx, s.URL(), s.options)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := commands(c); err != nil {
		return fmt.Errorf("%s: %w", s.addr, err)
	}
	return nil
}

func addrs(servers []*Server) []string {
	var list []string
	for _, s := range servers {
		list = append(list, s.addr)
	}
	return list
}
