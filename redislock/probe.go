package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// findings are what the servers' settings say about locks kept there.
type findings struct{ caveats []string }

func (f *findings) add(caveat string) {
	for _, c := range f.caveats {
		if c == caveat {
			return
		}
	}
	f.caveats = append(f.caveats, caveat)
}

// probe loads the scripts and reads the settings, in one round trip to each master.
func (b *Backend) probe(ctx context.Context) (findings, error) {
	var mu sync.Mutex
	var all findings
	one := func(ctx context.Context, c redis.UniversalClient) error {
		f, err := b.probeServer(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		for _, s := range f.caveats {
			all.add(s)
		}
		return err
	}
	_, err := b.detachedAny(ctx, func() (any, error) {
		if b.cluster != nil {
			return nil, b.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return one(ctx, c) })
		}
		return nil, one(ctx, b.rdb)
	})
	mu.Lock()
	defer mu.Unlock()
	return all, err
}

func (b *Backend) probeServer(ctx context.Context, c redis.UniversalClient) (f findings, err error) {
	p := c.Pipeline()
	loads := make([]*redis.StringCmd, len(b.scripts))
	for i, s := range b.scripts {
		loads[i] = p.ScriptLoad(ctx, s.src)
	}
	server, memory := p.Info(ctx, "server"), p.Info(ctx, "memory")
	_, _ = p.Exec(ctx) // each command has its error
	for _, l := range loads {
		// without the permission to load, EVAL does it when a script is first used
		if l.Err() != nil && !redis.IsPermissionError(l.Err()) {
			return f, failure(l.Err())
		}
	}
	if server.Err() != nil || memory.Err() != nil {
		if err := server.Err(); err != nil && !redis.IsPermissionError(err) {
			return f, failure(err)
		}
		f.add("The server's version and eviction policy are unknown: reading them with INFO was not permitted. Locks may be evicted if its maxmemory-policy is not noeviction.")
		return f, nil
	}
	info := parseInfo(server.Val() + "\n" + memory.Val())
	least := "6.0"
	if b.cluster != nil {
		least = "7.0"
	}
	if v := info["redis_version"]; v != "" && older(v, least) {
		return f, fmt.Errorf("redis: server version %s is too old: want %s or newer", v, least)
	}
	if info["redis_mode"] == "cluster" && b.cluster == nil {
		return f, fmt.Errorf("%w client: the server is part of a cluster; want redis+cluster://, or a *redis.ClusterClient", backend.ErrInvalid)
	}
	policy := info["maxmemory_policy"]
	switch {
	case policy == "":
		f.add("The server's eviction policy is unknown. Locks may be evicted if its maxmemory-policy is not noeviction.")
	case policy == "noeviction":
	case !b.opt.allowEviction && info["maxmemory"] != "0":
		return f, fmt.Errorf("%w server: its maxmemory-policy %s evicts locks when memory is full, and two could then hold one; "+
			"set noeviction, use another server, or accept it with eviction=accept in the URL or redislock.WithEviction", backend.ErrInvalid, policy)
	case info["maxmemory"] == "0":
		f.add("The server's maxmemory-policy " + policy + " would evict locks, if a maxmemory were set.")
	default:
		f.add("The server's maxmemory-policy " + policy + " evicts locks when memory is full: two may then hold one.")
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

// older compares major and minor.
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
