package redislock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// migration moves the slot of a key to another master of a cluster, key by key.
type migration struct {
	t           *testing.T
	addrs       []string
	slot        int
	from, to    int
	src, dst    *redis.Client
	source, end string // node ids
}

// migrate begins the migration. No key moves yet.
func migrate(t *testing.T, addrs []string, key string) *migration {
	t.Helper()
	m := &migration{t: t, addrs: addrs}
	m.slot = int(client(t, addrs[0]).ClusterKeySlot(t.Context(), key).Val())
	m.from = m.slot / 5462
	m.to = (m.from + 1) % 3
	m.src, m.dst = client(t, addrs[m.from]), client(t, addrs[m.to])
	m.source, m.end = m.src.Do(t.Context(), "cluster", "myid").Val().(string), m.dst.Do(t.Context(), "cluster", "myid").Val().(string)
	must(t, m.dst.Do(t.Context(), "cluster", "setslot", m.slot, "importing", m.source).Err())
	must(t, m.src.Do(t.Context(), "cluster", "setslot", m.slot, "migrating", m.end).Err())
	return m
}

// move moves keys.
func (m *migration) move(keys ...string) {
	m.t.Helper()
	host, port, _ := strings.Cut(m.addrs[m.to], ":")
	args := []any{"migrate", host, port, "", 0, 5000, "keys"}
	for _, k := range keys {
		args = append(args, k)
	}
	must(m.t, m.src.Do(m.t.Context(), args...).Err())
}

// finish moves what is left, and ends the migration.
func (m *migration) finish() {
	m.t.Helper()
	for {
		keys := m.src.ClusterGetKeysInSlot(m.t.Context(), m.slot, 100).Val()
		if len(keys) == 0 {
			break
		}
		m.move(keys...)
	}
	for _, a := range []int{m.to, m.from, 3 - m.to - m.from} {
		must(m.t, client(m.t, m.addrs[a]).Do(m.t.Context(), "cluster", "setslot", m.slot, "node", m.end).Err())
	}
}

// noReply fails if a request has a reply within 50 ms: that it has none cannot be awaited.
func noReply(t *testing.T, what string, reply <-chan error) {
	t.Helper()
	select {
	case err := <-reply:
		t.Fatalf("%s while the keys are on two servers: %v", what, err)
	case <-time.After(50 * time.Millisecond):
	}
}

// In a slot that migrates an exclusive lock is renewed, by its key alone. It is released and acquired after that.
func TestExclusiveLockMigrates(t *testing.T) {
	addrs := startCluster(t)
	url := "redis+cluster://" + strings.Join(addrs, ",")
	b, b2 := openURL(t, url), openURL(t, url)
	g := take(t, b, request("a"))
	ch := enqueue(t.Context(), t, b2, request("a"))
	keys := b.svc.keysOf("a", "x")
	m := migrate(t, addrs, keys[0])
	strict := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, MaxRetries: -1})
	defer strict.Close()
	err := strict.EvalSha(t.Context(), theScripts.renew.SHA, keys, b.svc.channelPrefix, b.svc.proc.Address, "x", 1000, "0").Err()
	if !redis.IsTryAgainError(err) {
		t.Errorf("a script with all keys: %v, want TRYAGAIN", err)
	}
	taken, over := make(chan acquired, 2), make(chan error, 1)
	go func() {
		g, err := b.Acquire(context.Background(), request("a"))
		taken <- acquired{Grant: g, Err: err}
	}()
	must(t, m.src.Del(t.Context(), keys[1]).Err()) // the waiter enters the queue again
	must(t, g.Renew(t.Context(), time.Minute))
	m.move(keys[0])
	must(t, m.dst.ScriptFlush(t.Context()).Err())
	must(t, g.Renew(t.Context(), 2*time.Minute))
	if left := m.left(keys[0]); left < time.Minute {
		t.Errorf("the server keeps it for %v", left)
	}
	must(t, g.(backend.Keeper).Keep(t.Context(), 10*time.Second))
	if left := m.left(keys[0]); left > 10*time.Second {
		t.Errorf("the server keeps it for %v", left)
	}
	go func() { over <- g.Release(context.Background()) }()
	noReply(t, "released", over)
	m.finish()
	must(t, <-over)
	go func() { taken <- <-ch }()
	for range 2 { // in the order in which they have entered the queue again
		must(t, get(t, taken).Release(t.Context()))
	}
}

// left returns how long the new master keeps a key.
func (m *migration) left(key string) time.Duration {
	m.t.Helper()
	var left *redis.DurationCmd
	_, err := m.dst.Pipelined(m.t.Context(), func(p redis.Pipeliner) error {
		p.Do(m.t.Context(), "asking")
		left = p.PTTL(m.t.Context(), key)
		return nil
	})
	must(m.t, err)
	return left.Val()
}

// In a slot that migrates readers and permits are renewed while the three keys of their lock are on one server, and as
// soon as they are again.
func TestSharesMigrate(t *testing.T) {
	for name, share := range map[string]backend.Share{"reader": backend.Reader, "permits": permits(2, 5)} {
		t.Run(name, func(t *testing.T) {
			addrs := startCluster(t)
			b := openURL(t, "redis+cluster://"+strings.Join(addrs, ","))
			g, other := take(t, b, shareRequest("s", share)), take(t, b, shareRequest("s", share))
			keys := b.svc.keysOf("s", "")
			lock, holders, ends := keys[0], keys[3], keys[4]
			renew := func(what string, ttl time.Duration) {
				t.Helper()
				if err := g.Renew(t.Context(), ttl); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if left := time.Until(g.Until()); left < ttl-10*time.Second {
					t.Errorf("%s: renewed for %v", what, left)
				}
			}
			m := migrate(t, addrs, lock)
			renew("at the old master", time.Minute)
			m.move(lock)
			renewed := make(chan error, 1)
			go func() { renewed <- g.Renew(context.Background(), 2*time.Minute) }()
			noReply(t, "renewed", renewed)
			m.move(holders, ends)
			must(t, <-renewed)
			renew("at the new master", 3*time.Minute)
			for _, key := range []string{lock, holders, ends} {
				if left := m.left(key); left < 170*time.Second {
					t.Errorf("the server keeps %s for %v", key, left)
				}
			}
			must(t, g.(backend.Keeper).Keep(t.Context(), 100*time.Second))
			must(t, other.Renew(t.Context(), 4*time.Minute))
			m.finish()

			in, err := b.Inspect(t.Context(), "s")
			must(t, err)
			if in.Holder == nil || len(in.Others) != 1 {
				t.Fatalf("%+v", in)
			}
			lefts := []time.Duration{in.Holder.Left, in.Others[0].Left}
			slices.Sort(lefts)
			if lefts[0] > 100*time.Second || lefts[1] < 230*time.Second {
				t.Errorf("the leases last for %v", lefts)
			}
			must(t, g.Release(t.Context()))
			must(t, other.Release(t.Context()))
			if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
				t.Errorf("after the release: %v", err)
			}
		})
	}
}
