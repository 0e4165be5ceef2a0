package redislock_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/redislock"
	"github.com/interlock-go/lock/redislock/internal/redistest"
)

// fenced writes a hash and its token, unless the hash has a greater token. Tokens exceed
// 2^53 with local hand-off, and a number of Lua is a double: the script compares text.
var fenced = redis.NewScript(`
	local token, greatest = ARGV[1], redis.call('HGET', KEYS[1], 'fence') or '0'
	if #token < #greatest or #token == #greatest and token < greatest then
		return redis.error_reply('stale fencing token')
	end
	return redis.call('HSET', KEYS[1], 'fence', token, 'state', ARGV[2])`)

func ship(ctx context.Context, client redis.UniversalClient, order string, token uint64) error {
	return fenced.Run(ctx, client, []string{order}, token, "shipped").Err()
}

func TestFencedScriptComparesExactly(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: redistest.Server(t)})
	defer c.Close()
	order := redistest.NewPrefix() + "orders:42"
	const grant = 1763000000000000 << 8 // a token of local hand-off, far greater than 2^53
	for _, step := range []struct {
		token uint64
		stale bool
	}{
		{9, false}, {10, false}, {9, true},
		{1<<53 + 1, false}, {1 << 53, true}, {1<<53 + 1, false},
		{grant, false}, {grant + 1, false}, {grant, true}, {grant + 255, false}, {grant + 254, true},
		{math.MaxUint64, false}, {math.MaxUint64 - 1, true}, {10, true},
	} {
		err := ship(t.Context(), c, order, step.token)
		if stale := err != nil && err.Error() == "stale fencing token"; stale != step.stale || err != nil && !stale {
			t.Errorf("token %d: got %v, want stale %v", step.token, err, step.stale)
		}
	}
}

// A client of the application, which the driver uses and never closes.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	b, err := redislock.New(client, redislock.WithPrefix("shop"))
	if err != nil {
		log.Print(err)
		return
	}
	c, err := lock.New(b)
	if err != nil {
		log.Print(err)
		return
	}
	defer c.Close(ctx)
	err = lock.Do(ctx, c.Mutex("orders/42"), func(ctx context.Context) error {
		token, _ := lock.FromContext(ctx).Token()
		return ship(ctx, client, "orders/42", token)
	})
	if err != nil {
		log.Print(err)
	}
}

// The key of a lock, for redis-cli.
func ExampleKey() {
	fmt.Println(redislock.Key(redislock.DefaultPrefix, "orders/42"))
	// Output: lock:orders/42
}
