package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// A server whose memory is full refuses new locks, and renews, releases and hands over those that are held, of each
// kind.
func TestFullMemory(t *testing.T) {
	for _, flavour := range provision.RedisFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewRedis(t, flavour, provision.Options{Args: []string{"--maxmemory-policy", "noeviction"}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			holder, other, admin := open(t, s.URL()), open(t, s.URL()), adminOf(t, s.Addr())
			ttl := lock.WithTTL(3 * time.Second)
			held := map[string]*lock.Lease{"writer": tryLock(t, holder, "writer", ttl), "downgraded": nil}
			rw, permits := holder.RWMutex("reader", ttl), holder.Semaphore("permit", 3, ttl)
			var err error
			held["reader"], err = rw.TryRLock(ctx)
			must(t, err)
			held["permit"], err = permits.TryAcquire(ctx, 2)
			must(t, err)
			held["downgraded"], err = holder.RWMutex("downgraded", ttl).TryLock(ctx)
			must(t, err)
			must(t, held["downgraded"].Downgrade(ctx))

			next := make(chan error, len(held))
			for name := range held {
				go func() {
					l, err := other.Mutex(name).Lock(ctx)
					if err == nil {
						err = l.Unlock(ctx)
					}
					next <- err
				}()
			}
			for name := range held {
				eventually(t, name+" has a waiter", func() bool {
					i, err := holder.Inspect(ctx, name)
					return err == nil && len(i.Waiters) == 1
				})
			}
			must(t, admin.ConfigSet(ctx, "maxmemory", "1").Err())
			if _, err := other.Mutex("new").TryLock(ctx); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("a new lock: %v", err)
			}
			for name, l := range held {
				if err := l.Extend(ctx, 3*time.Second); err != nil {
					t.Errorf("renewal of the %s: %v", name, err)
				}
			}
			for name, l := range held {
				if err := l.Unlock(ctx); err != nil {
					t.Errorf("Unlock of the %s: %v", name, err)
				}
			}
			for range held {
				must(t, <-next)
			}
		})
	}
}
