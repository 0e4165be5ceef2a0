package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

func etcdClient(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func etcdPing(c *clientv3.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Get(ctx, "ping")
		return err
	}
}

func etcdPeers(addr string) []measure.Target {
	return []measure.Target{target("etcd concurrency.Mutex", func(context.Context) (*peer, error) {
		c, err := etcdClient(addr)
		if err != nil {
			return nil, err
		}
		sessions := &sessions{c: c}
		return &peer{
			ping: etcdPing(c),
			close: func() error {
				sessions.close()
				return c.Close()
			},
			lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
				s, err := sessions.get()
				if err != nil {
					return nil, err
				}
				m := concurrency.NewMutex(s, "/"+name)
				if err := m.Lock(ctx); err != nil {
					sessions.put(s)
					return nil, err
				}
				return func(ctx context.Context) error {
					defer sessions.put(s)
					return m.Unlock(ctx)
				}, nil
			},
		}, nil
	}), floor(func(context.Context) (writes, *peer, error) {
		c, err := etcdClient(addr)
		if err != nil {
			return writes{}, nil, err
		}
		put := func(ctx context.Context, name string) error {
			_, err := c.Put(ctx, "floor/"+name, "x")
			return err
		}
		return writes{put, put}, &peer{ping: etcdPing(c), close: c.Close}, nil
	})}
}

// sessions is a pool. Each waiter needs its own session: on one session two waiters would
// share a key.
type sessions struct {
	c    *clientv3.Client
	mu   sync.Mutex
	free []*concurrency.Session
}

func (s *sessions) get() (*concurrency.Session, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		session := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return session, nil
	}
	s.mu.Unlock()
	return concurrency.NewSession(s.c, concurrency.WithTTL(ttl))
}

func (s *sessions) put(session *concurrency.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, session)
}

func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.free {
		_ = f.Close() // the client is closed next
	}
}

func zooKeeperClient(addr string) (*zk.Conn, *peer, error) {
	c, _, err := zk.Connect([]string{addr}, ttl*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		return nil, nil, err
	}
	return c, &peer{
		ping: func(context.Context) error {
			_, _, err := c.Exists("/")
			return err
		},
		close: func() error { c.Close(); return nil },
	}, nil
}

func zooKeeperPeers(addr string) []measure.Target {
	return []measure.Target{target("go-zookeeper zk.Lock", func(context.Context) (*peer, error) {
		c, p, err := zooKeeperClient(addr)
		if err != nil {
			return nil, err
		}
		// Only closing the connection ends a Lock that waits.
		p.lock = func(_ context.Context, name string) (func(context.Context) error, error) {
			l := zk.NewLock(c, "/peers/"+name, zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return nil, err
			}
			return func(context.Context) error { return l.Unlock() }, nil
		}
		return p, nil
	}), floor(func(context.Context) (writes, *peer, error) {
		c, p, err := zooKeeperClient(addr)
		if err != nil {
			return writes{}, nil, err
		}
		create := func(path string) error {
			_, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			if errors.Is(err, zk.ErrNodeExists) {
				return nil
			}
			return err
		}
		if err := create("/floor"); err != nil {
			c.Close()
			return writes{}, nil, err
		}
		var made once
		set := func(_ context.Context, name string) error {
			path := "/floor/" + name
			if err := made.do(path, func() error { return create(path) }); err != nil {
				return err
			}
			_, err := c.Set(path, []byte("x"), -1)
			return err
		}
		return writes{set, set}, p, nil
	})}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
