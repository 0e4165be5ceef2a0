package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Findings are what follows from the settings of the servers.
type Findings struct {
	Caveats []string
	Evicts  bool // the server evicts keys when its memory is full
}

// Add adds a caveat once.
func (f *Findings) Add(caveat string) {
	if !slices.Contains(f.Caveats, caveat) {
		f.Caveats = append(f.Caveats, caveat)
	}
}

// Merge adds the findings of another server.
func (f *Findings) Merge(other Findings) {
	for _, c := range other.Caveats {
		f.Add(c)
	}
	f.Evicts = f.Evicts || other.Evicts
}

// Declare adds the caveats to c. A server that evicts keys may forget a queue, and then
// neither keeps its order nor notifies its waiters.
func (f *Findings) Declare(c *backend.Capabilities) {
	c.Caveats = append(c.Caveats, f.Caveats...)
	if f.Evicts {
		c.Order, c.Wake = backend.Unordered, backend.WakePoll
	}
}

// Probe checks the settings and loads the scripts, in two round trips to each master. It
// returns ErrInvalid for a server that cannot keep locks.
func (s *Server) Probe(ctx context.Context, scripts []*protocol.Script, allowEviction bool) (Findings, error) {
	var mu sync.Mutex
	var all Findings
	one := func(ctx context.Context, c redis.UniversalClient) error {
		f, err := probe(ctx, c, s.Cluster != nil, scripts, allowEviction)
		mu.Lock()
		defer mu.Unlock()
		all.Merge(f)
		return err
	}
	_, err := call.Detached(ctx, s.Life, func(ctx context.Context, _ *call.Sending) (any, error) {
		if s.Cluster != nil {
			return nil, s.Cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return one(ctx, c) })
		}
		return nil, one(ctx, s.Client)
	})
	mu.Lock()
	defer mu.Unlock()
	return all, err
}

func probe(ctx context.Context, c redis.UniversalClient, cluster bool, scripts []*protocol.Script, allowEviction bool) (f Findings, err error) {
	p := c.Pipeline()
	server, memory := p.Info(ctx, "server"), p.Info(ctx, "memory")
	_, _ = p.Exec(ctx) // each command has its own error
	if err := server.Err(); err != nil && !redis.IsPermissionError(err) {
		return f, Failure(err) // before AUTH the server ends a connection that sends it a script of more than 16 KB
	}
	loads := make([]*redis.StringCmd, len(scripts))
	for i, s := range scripts {
		loads[i] = p.ScriptLoad(ctx, s.Source)
	}
	_, _ = p.Exec(ctx)
	for _, l := range loads {
		// without the permission to load scripts, EVAL loads them at their first use
		if l.Err() != nil && !redis.IsPermissionError(l.Err()) {
			return f, Failure(l.Err())
		}
	}
	if server.Err() != nil || memory.Err() != nil {
		f.Add("The server's version and eviction policy are unknown: reading them with INFO was not permitted. Locks may be evicted if its maxmemory-policy is not noeviction.")
		return f, nil
	}
	info := parseInfo(server.Val() + "\n" + memory.Val())
	least := "6.2"
	if cluster {
		least = "7.0"
	}
	if v := info["redis_version"]; v != "" && older(v, least) {
		return f, fmt.Errorf("redis: server version %s is too old: want %s or newer", v, least)
	}
	if info["redis_mode"] == "cluster" && !cluster {
		return f, fmt.Errorf("%w client: the server is part of a cluster; want redis+cluster://, or a *redis.ClusterClient", backend.ErrInvalid)
	}
	policy := info["maxmemory_policy"]
	switch {
	case policy == "":
		f.Add("The server's eviction policy is unknown. Locks may be evicted if its maxmemory-policy is not noeviction.")
	case policy == "noeviction":
	case !allowEviction && info["maxmemory"] != "0":
		return f, fmt.Errorf("%w server: its maxmemory-policy %s evicts locks when memory is full, and a second holder would be granted the lock; "+
			"set noeviction, use another server, or accept it with eviction=accept in the URL or the option WithEviction", backend.ErrInvalid, policy)
	case info["maxmemory"] == "0":
		f.Add("The server's maxmemory-policy " + policy + " would evict locks, if a maxmemory were set.")
	default:
		f.Evicts = true
		f.Add("The server's maxmemory-policy " + policy + " evicts keys when memory is full. If it evicts a lock, a second holder may be granted it; if it evicts a queue, its waiters find the free lock only when they poll, in any order.")
	}
	return f, nil
}

func parseInfo(s string) map[string]string {
	m := map[string]string{}
	for l := range strings.Lines(s) {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), ":"); ok {
			m[k] = v
		}
	}
	return m
}

// older reports whether version is older than least, by major and minor number.
func older(version, least string) bool {
	num := func(s string) int {
		major, rest, _ := strings.Cut(s, ".")
		minor, _, _ := strings.Cut(rest, ".")
		a, _ := strconv.Atoi(major)
		b, _ := strconv.Atoi(minor)
		return a*1000 + b
	}
	return num(version) < num(least)
}
