package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// redisLog receives what the Redis client would print on stderr by itself: failed
// dials above all, which lockctl's own messages tell of.
type redisLog struct{ log *slog.Logger }

func (r redisLog) Printf(_ context.Context, format string, v ...any) {
	if r.log != nil {
		r.log.Debug("redis client", "says", fmt.Sprintf(format, v...))
	}
}

// quietRedis keeps the Redis client off stderr, unless log is set.
func quietRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }
