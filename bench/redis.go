package bench

import (
	"cmp"
	"context"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

func redisPeers(addr string) []measure.Target {
	return []measure.Target{
		bsmRedislock("bsm/redislock, each 1 ms", addr, time.Millisecond),
		bsmRedislock("bsm/redislock, each 100 ms", addr, 100*time.Millisecond),
		redsyncOn("redsync", []string{addr}),
		rueidisLock("rueidislock, majority of 1", addr, 1),
		rueidisLock("rueidislock", addr, 2),
		floor(func(context.Context) (writes, *peer, error) {
			c := redisClient(addr)
			return writes{
				lock: func(ctx context.Context, name string) error {
					return c.SetNX(ctx, "floor:"+name, "x", ttl*time.Second).Err()
				},
				unlock: func(ctx context.Context, name string) error {
					return deleteOwn.Run(ctx, c, []string{"floor:" + name}, "x").Err()
				},
			}, &peer{ping: func(ctx context.Context) error { return c.Ping(ctx).Err() }, close: c.Close}, nil
		}),
	}
}

// deleteOwn is the usual release of a lock that SET NX has taken.
var deleteOwn = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

func redisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 128})
}

func bsmRedislock(name, addr string, every time.Duration) measure.Target {
	return target(name, func(context.Context) (*peer, error) {
		c := redisClient(addr)
		l := bsm.New(c)
		return &peer{
			ping:  func(ctx context.Context) error { return c.Ping(ctx).Err() },
			close: c.Close,
			lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
				// Without a deadline Obtain fails after the TTL.
				got, err := l.Obtain(ctx, name, ttl*time.Second, &bsm.Options{RetryStrategy: bsm.LinearBackoff(every)})
				if err != nil {
					return nil, err
				}
				return got.Release, nil
			},
		}, nil
	})
}

// redsyncOn is redsync with its default delays: a plain lock on one server, Redlock on
// several.
func redsyncOn(name string, addrs []string) measure.Target {
	return target(name, func(context.Context) (*peer, error) {
		clients := make([]*redis.Client, len(addrs))
		pools := make([]redsyncredis.Pool, len(addrs))
		for i, a := range addrs {
			clients[i] = redisClient(a)
			pools[i] = goredis.NewPool(clients[i])
		}
		rs := redsync.New(pools...)
		return &peer{
			ping: func(ctx context.Context) error { return clients[0].Ping(ctx).Err() },
			close: func() (err error) {
				for _, c := range clients {
					if cerr := c.Close(); err == nil {
						err = cerr
					}
				}
				return err
			},
			lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
				m := rs.NewMutex(name, redsync.WithExpiry(ttl*time.Second), redsync.WithTries(1<<30))
				if err := m.LockContext(ctx); err != nil {
					return nil, err
				}
				return func(ctx context.Context) error {
					_, err := m.UnlockContext(ctx)
					return err
				}, nil
			},
		}, nil
	})
}

func rueidisLock(name, addr string, majority int32) measure.Target {
	return target(name, func(context.Context) (*peer, error) {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
			KeyValidity:  ttl * time.Second, KeyMajority: majority, NoLoopTracking: true,
		})
		if err != nil {
			return nil, err
		}
		c := l.Client()
		return &peer{
			ping:  func(ctx context.Context) error { return c.Do(ctx, c.B().Ping().Build()).Error() },
			close: func() error { l.Close(); return nil },
			lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
				// Its lock ends with the context of the wait, which here ends before the holder unlocks.
				hold, end := context.WithCancel(context.WithoutCancel(ctx))
				granted := context.AfterFunc(ctx, end)
				_, cancel, err := l.WithContext(hold, name)
				if err != nil || !granted() {
					end()
					return nil, cmp.Or(err, ctx.Err())
				}
				return func(context.Context) error { cancel(); end(); return nil }, nil
			},
		}, nil
	})
}
