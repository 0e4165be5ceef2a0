package redlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/redislock/redlock"
)

// A majority of independent masters grants a lock.
func ExampleNew() {
	ctx := context.Background()
	var nodes []redis.UniversalClient
	for _, addr := range []string{"redis1:6379", "redis2:6379", "redis3:6379"} {
		node := redis.NewClient(&redis.Options{Addr: addr})
		defer node.Close()
		nodes = append(nodes, node)
	}
	b, err := redlock.New(nodes)
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
	if err := lock.Do(ctx, c.Mutex("orders/42"), func(context.Context) error { return nil }); err != nil {
		log.Print(err)
	}
}

// The key of a lock at each node, for redis-cli.
func ExampleKey() {
	fmt.Println(redlock.Key(redlock.DefaultPrefix, "orders/42"))
	// Output: lock:orders/42
}
