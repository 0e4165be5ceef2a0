package redislock_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A value in Redis that refuses a token lower than the greatest it has seen.
func Example_fencing() {
	fenced := redis.NewScript(`
		if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') then
			return redis.error_reply('stale fencing token')
		end
		return redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'state', ARGV[2])`)
	ship := func(ctx context.Context, client redis.UniversalClient, token uint64) error {
		return fenced.Run(ctx, client, []string{"orders:42"}, token, "shipped").Err()
	}
	_ = ship
}
