package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/cmd/lockbench/measure"
	"github.com/interlock-go/lock/integration/provision"
)

// Locks that may run side by side according to docs/migrating.md: a holder of the other
// library excludes this one, and the other way round.
func TestBesidePeers(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		s := provision.NewRedis(t, provision.AnyRedis, provision.Options{})
		for _, target := range []measure.Target{
			bsmRedislock("bsm", addrOf(s.URL()), time.Millisecond),
			redsyncOn("redsync", []string{addrOf(s.URL())}),
		} {
			t.Run(target.Name, func(t *testing.T) {
				p, err := target.Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close(t.Context())
				beside(t, p.(*peer), s.URL()+"?prefix=", "beside/"+target.Name, "beside/"+target.Name)
				beside(t, p.(*peer), s.URL(), "lock:beside/"+target.Name, "beside/"+target.Name)
			})
		}
	})
	t.Run("etcd", func(t *testing.T) {
		s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{})
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addrOf(s.URL())}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p := &peer{lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
			session, err := concurrency.NewSession(c, concurrency.WithTTL(ttl))
			if err != nil {
				return nil, err
			}
			m := concurrency.NewMutex(session, name)
			if err := m.Lock(ctx); err != nil {
				return nil, errors.Join(err, session.Close())
			}
			return func(ctx context.Context) error { return errors.Join(m.Unlock(ctx), session.Close()) }, nil
		}}
		beside(t, p, s.URL(), "lock/beside", "beside")
	})
}

func beside(t *testing.T, p *peer, url, theirs, ours string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := lock.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	m := c.Mutex(ours)

	unlock, err := p.lock(ctx, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := m.TryLock(ctx); !errors.Is(err, lock.ErrLocked) {
		t.Fatalf("beside a holder of the other library: want ErrLocked, got %v, %v", l, err)
	}
	if err := unlock(ctx); err != nil {
		t.Fatal(err)
	}

	l, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if _, err := p.lock(short, theirs); err == nil {
		t.Fatal("the other library locked a held lock")
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if unlock, err = p.lock(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	if err := unlock(ctx); err != nil {
		t.Fatal(err)
	}
}
