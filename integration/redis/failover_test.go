package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/redislock"
)

// service is a set of servers that fails over. Its clients have short timeouts, because a
// request to a server that hangs takes one.
type service struct {
	t    *testing.T
	url  string
	copy int // replicas that a master has
	// master is the one that serves the names of the test, as the servers say it
	master func() *provision.Server
	// channels is a pattern of the channels of a waiter for the name, and count counts those
	channels func(name string) string
	count    func(ctx context.Context, admin *goredis.Client, pattern string) *goredis.StringSliceCmd
}

const (
	failoverTTL  = time.Minute // outlasts a failover on a slow machine, also by a Sentinel that does nothing for 30 s
	shortParams  = "?dial_timeout=3s&read_timeout=3s&ttl=60s"
	shortLiveTTL = time.Second // does not: a master is given up after that time at the earliest
)

// masterNow returns the master; there is one between two failovers.
func (s *service) masterNow() (m *provision.Server) {
	s.t.Helper()
	eventually(s.t, "there is a master", func() bool { m = s.master(); return m != nil })
	return m
}

// inStep returns when the replicas have all data of the master.
func (s *service) inStep(name string) {
	s.t.Helper()
	admin := adminOf(s.t, s.masterNow().Addr())
	eventually(s.t, "the replicas acknowledge", func() bool {
		must(s.t, admin.Set(s.t.Context(), "{"+redislock.Key("lock", name)+"}:in-step", "?", time.Minute).Err())
		return admin.Wait(s.t.Context(), s.copy, time.Second).Val() >= int64(s.copy)
	})
}

// wait lets another client wait for the name. That client also holds another lock, so that
// requests of it fail soon after the master. wait returns false if it got the lease at
// once.
func (s *service) wait(name string, leases chan *lock.Lease) (waits bool) {
	s.t.Helper()
	c := open(s.t, s.url)
	before := s.waiters(c, name)
	tryLock(s.t, c, fmt.Sprint(name, "/", before), lock.WithTTL(failoverTTL/3))
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*waitLimit)
		defer cancel()
		l, err := c.Mutex(name).Lock(ctx)
		if err != nil {
			s.t.Errorf("waiting for %s: %v", name, err)
		}
		leases <- l
	}()
	eventually(s.t, "it waits", func() bool {
		waits = s.waiters(c, name) > before
		return waits || len(leases) > 0
	})
	return waits
}

func (s *service) waiters(c *lock.Client, name string) int {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()
	i, err := c.Inspect(ctx, name)
	if err != nil {
		return -1
	}
	return len(i.Waiters)
}

// failover tests a lock with a holder and a waiter whose master fails. Leases that the new
// master knows are kept, the waiter waits again and is notified, and the holder knows
// of a loss before another client holds the lock. outage is set if there is no master
// for longer than the short lease.
func (s *service) failover(name string, outage bool, fail func(master *provision.Server)) {
	t := s.t
	holder := open(t, s.url)
	long := tryLock(t, holder, name)
	forgotten := tryLock(t, holder, "{"+name+"}")
	queue, successor := make(chan *lock.Lease, 2), make(chan *lock.Lease, 1)
	for range cap(queue) {
		if !s.wait(name, queue) {
			t.Fatalf("%s: granted while it is held", name)
		}
	}
	s.inStep(name)
	var short *lock.Lease
	shortName := name + "/short"
	if outage {
		short = tryLock(t, holder, shortName, lock.WithTTL(shortLiveTTL))
		if !s.wait(shortName, successor) {
			s.inStep(name) // the machine stood still for so long that it was lost before: its successor's is kept
		}
	}

	old, start := s.masterNow(), time.Now()
	fail(old)
	var promoted *provision.Server
	eventually(t, "another is master", func() bool { promoted = s.master(); return promoted != nil && promoted != old })
	t.Logf("%s: another is master after %v", name, time.Since(start).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	eventually(t, "the holder follows", func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return long.Check(ctx) == nil
	})
	follows := time.Now()
	t.Logf("%s: the holder follows after %v", name, time.Since(start).Round(time.Millisecond))
	if outage {
		l := s.next(successor)
		if err := short.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("a successor was granted while the lease that could not be renewed said %v", err)
		}
		must(t, l.Unlock(ctx))
		if err := short.Unlock(ctx); !errors.Is(err, lock.ErrLost) {
			t.Errorf("unlock of the lost one: %v", err)
		}
	}
	// as if it had not been replicated; the old master may still serve for a moment
	admin := adminOf(t, promoted.Addr())
	eventually(t, "what the new master does not know is lost", func() bool {
		must(t, admin.Del(ctx, redislock.Key("lock", forgotten.Name())).Err())
		return errors.Is(forgotten.Check(ctx), lock.ErrLost)
	})
	eventually(t, "the waiters are in the queue and listen at the new master", func() bool {
		return s.waiters(holder, name) == 2 && len(s.count(ctx, admin, s.channels(name)).Val()) >= 2
	})
	if late := time.Since(follows); late > failoverTTL/2 { // less than until they ask unasked
		t.Errorf("%s: the waiters were back %v after the holder", name, late)
	}
	t.Logf("%s: the waiters follow after %v", name, time.Since(start).Round(time.Millisecond))
	last, _ := long.Token()
	must(t, long.Unlock(ctx))
	for range 2 {
		freed := time.Now()
		l := s.next(queue)
		if late := time.Since(freed); late > failoverTTL/2 {
			t.Errorf("%s: granted %v after it was free: by a poll, not by a notification", name, late)
		}
		token, _ := l.Token()
		if token <= last {
			t.Errorf("%s: token %d after %d", name, token, last)
		}
		last = token
		select {
		case <-queue:
			t.Errorf("%s: two at once", name)
		default:
		}
		must(t, l.Unlock(ctx))
	}
}

func (s *service) next(leases <-chan *lock.Lease) *lock.Lease {
	s.t.Helper()
	select {
	case l := <-leases:
		if l == nil {
			s.t.FailNow()
		}
		return l
	case <-time.After(2 * waitLimit):
		s.t.Fatal("no grant")
		return nil
	}
}
