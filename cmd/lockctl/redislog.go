package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// redisLogger logs the messages of the Redis client, which by default writes them to
// stderr: above all failed connections, which the errors of the commands report too.
type redisLogger struct{ log *slog.Logger }

func (r redisLogger) Printf(_ context.Context, format string, v ...any) {
	if r.log != nil {
		r.log.Debug("redis client", "message", fmt.Sprintf(format, v...))
	}
}

// setRedisLogger makes the Redis client log to log, or not at all if log is nil.
func setRedisLogger(log *slog.Logger) { redis.SetLogger(redisLogger{log}) }
