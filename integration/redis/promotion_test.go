package redis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/redistest"
)

// These tests force the worst case of an asynchronous failover: a replica is cut off from
// the stream of its master, and promoted.

// waitLimit is how long a test waits for an event that must come.
const waitLimit = 60 * time.Second

// copied is a master with replicas, each on its own link.
type copied struct {
	t        *testing.T
	master   *provision.Server
	replicas []*provision.Server
	links    []*provision.Proxy
}

func newCopied(t *testing.T, replicas int) *copied {
	t.Helper()
	quick := []string{"--repl-diskless-sync-delay", "0"}
	c := &copied{t: t, master: provision.NewRedis(t, provision.AnyRedis, provision.Options{Binary: true, Args: quick})}
	for range replicas {
		link := provision.NewProxy(t, c.master.Addr())
		host, port, err := net.SplitHostPort(link.Addr())
		must(t, err)
		c.links = append(c.links, link)
		c.replicas = append(c.replicas, provision.NewRedis(t, provision.AnyRedis, provision.Options{Binary: true, Args: append(quick, "--replicaof", host, port)}))
	}
	for _, r := range c.replicas {
		admin := adminOf(t, r.Addr())
		eventually(t, "a replica has its copy", func() bool {
			return strings.Contains(admin.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
	}
	c.inStep(replicas)
	return c
}

// inStep returns when so many replicas have all data of the master.
func (c *copied) inStep(replicas int) {
	c.t.Helper()
	admin := adminOf(c.t, c.master.Addr())
	eventually(c.t, "the replicas acknowledge", func() bool {
		must(c.t, admin.Set(c.t.Context(), "in-step", "?", 0).Err()) // WAIT is about what its connection wrote
		return admin.Wait(c.t.Context(), replicas, time.Second).Val() >= int64(replicas)
	})
}

// promote makes a replica the master of the clients.
func (c *copied) promote(i int) *lock.Client {
	c.t.Helper()
	must(c.t, adminOf(c.t, c.replicas[i].Addr()).ReplicaOf(c.t.Context(), "no", "one").Err())
	return open(c.t, c.replicas[i].URL())
}

func adminOf(t *testing.T, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func open(t *testing.T, url string, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url, opts...)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		_ = c.Close(ctx) // what it holds may be lost, and its server gone
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", waitLimit, what)
		}
	}
}

func tryLock(t *testing.T, c *lock.Client, name string, opts ...lock.MutexOption) *lock.Lease {
	t.Helper()
	l, err := c.Mutex(name, opts...).TryLock(t.Context())
	must(t, err)
	return l
}

// guarded lets a former and a present holder write in turn to a resource that checks
// tokens. It must refuse the last write of the former holder.
func guarded(t *testing.T, former, present *lock.Lease) {
	t.Helper()
	store := adminOf(t, provision.NewRedis(t, provision.AnyRedis, provision.Options{Binary: true}).Addr())
	first, _ := former.Token()
	second, _ := present.Token()
	if second <= first {
		t.Errorf("the token at the promoted replica is %d, after %d", second, first)
	}
	write := func(token uint64) error { return redistest.GuardedWrite(t.Context(), store, former.Name(), token) }
	must(t, write(first))
	must(t, write(second))
	if err := write(first); err == nil || !strings.Contains(err.Error(), "stale fencing token") {
		t.Errorf("a write with the former holder's token: %v", err)
	}
	must(t, write(second))
}

// Redis replicates after its reply. A replica that is promoted without the grant grants the
// lock a second time, while the first holder still trusts its lease; see
// docs/backends/redis.md. The resource refuses the token of the first.
func TestPromotionWithoutTheGrant(t *testing.T) {
	t.Parallel()
	c := newCopied(t, 1)
	a := open(t, c.master.URL())
	// the replica knows this grant and its counter
	seen := tryLock(t, a, "k", lock.WithTTL(time.Minute))
	c.inStep(1)
	c.links[0].Cut()
	must(t, seen.Unlock(t.Context())) // which the replica does not learn
	first := tryLock(t, a, "k", lock.WithTTL(time.Minute))
	fresh := tryLock(t, a, "fresh", lock.WithTTL(time.Minute))

	b := c.promote(0)
	if _, err := b.Mutex("k").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Errorf("a hold that ended after the link was cut: %v", err)
	}
	_, err := b.Break(t.Context(), "k") // as its expiry would
	must(t, err)
	for _, former := range []*lock.Lease{first, fresh} {
		present := tryLock(t, b, former.Name())
		if err := errors.Join(former.Err(), former.Check(t.Context()), present.Err()); err != nil {
			t.Fatalf("%s: want both to hold it, which is the weakness: %v", former.Name(), err)
		}
		guarded(t, former, present)
	}
}

// With WAIT an acquire fails if the replica does not have the grant. A grant that was
// reported is kept when that replica is promoted.
func TestPromotionWithWait(t *testing.T) {
	t.Parallel()
	c := newCopied(t, 1)
	a := open(t, c.master.URL()+"?wait_replicas=1&wait_timeout=1s&read_timeout=3s")
	long := tryLock(t, a, "long", lock.WithTTL(5*time.Minute))
	short := tryLock(t, a, "short", lock.WithTTL(3*time.Second))
	c.links[0].Cut()
	refused, err := a.Mutex("k").TryLock(t.Context())
	if err == nil || !strings.Contains(err.Error(), "0 of 1 acknowledged") {
		t.Fatalf("without the replica: %v, %v", refused, err)
	}
	if n := adminOf(t, c.master.Addr()).Exists(t.Context(), "lock:k").Val(); n != 0 {
		t.Error("what was refused is kept at the master")
	}

	b := c.promote(0)
	must(t, tryLock(t, b, "k").Unlock(t.Context())) // it is free
	_, err = b.Mutex("long").TryLock(t.Context())
	var locked *lock.LockedError
	if token, _ := long.Token(); !errors.As(err, &locked) || locked.Holder.Token != token {
		t.Errorf("a hold that the replica had acknowledged, with token %d: %v", token, err)
	}
	// the lease is not renewed on the promoted replica; on the old master it does not count
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	present, err := b.Mutex("short").Lock(ctx)
	must(t, err)
	if err := short.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("granted to another while the first still trusts: %v", err)
	}
	guarded(t, short, present)
}

// WAIT counts replicas and does not choose them: after a failover to another one the lock is
// granted a second time. The token of the second grant is higher.
func TestPromotionOfAnotherReplica(t *testing.T) {
	t.Parallel()
	c := newCopied(t, 2)
	c.links[1].Cut()
	a := open(t, c.master.URL()+"?wait_replicas=1&wait_timeout=2s&read_timeout=3s")
	former := tryLock(t, a, "k", lock.WithTTL(time.Minute))
	b := c.promote(1)
	present := tryLock(t, b, "k")
	if err := errors.Join(former.Err(), former.Check(t.Context()), present.Err()); err != nil {
		t.Fatalf("want both to hold it, which is what WAIT does not exclude: %v", err)
	}
	guarded(t, former, present)
}

// A server without an append-only file loses its grants in a restart: the same weakness as
// that of a replica, with the same remedy.
func TestRestartWithoutPersistence(t *testing.T) {
	t.Parallel()
	s := provision.NewRedis(t, provision.AnyRedis, provision.Options{Binary: true, Args: []string{"--save", "", "--appendonly", "no"}})
	a, b := open(t, s.URL()), open(t, s.URL())
	former := tryLock(t, a, "k", lock.WithTTL(5*time.Minute)) // not renewed before long
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	must(t, errors.Join(s.Kill(), s.Restart(ctx)))
	var present *lock.Lease
	eventually(t, "the lock is granted again", func() bool { // connections of before the restart fail once
		l, err := b.Mutex("k").TryLock(ctx)
		present = l
		return err == nil
	})
	if err := former.Err(); err != nil {
		t.Errorf("want the first to trust still, which is the weakness: %v", err)
	}
	guarded(t, former, present)
	eventually(t, "the first learns of it at its next request", func() bool { return errors.Is(former.Check(ctx), lock.ErrLost) })
	must(t, present.Unlock(ctx))
}
