// Package redistest counts what a Redis server does, for the harnesses of redislock and redlock.
package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Commands counts the scripts and subscriptions that clients have executed.
func Commands(ctx context.Context, admin *goredis.Client) (int64, error) {
	stats, err := admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	var n int64
	for line := range strings.Lines(stats) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "evalsha", "eval", "fcall", "subscribe", "ssubscribe":
			calls, _, _ := strings.Cut(strings.TrimPrefix(fields, "calls="), ",")
			c, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("commandstats: %q", line)
			}
			n += c
		}
	}
	return n, nil
}

// GrantCounter counts the grants that scripts push to waiters. It reads MONITOR from its
// first use on.
type GrantCounter struct {
	T    testing.TB
	Addr string

	once  sync.Once
	err   error
	lines *bufio.Scanner
	n     int64
}

func (g *GrantCounter) start() error {
	c, err := net.Dial("tcp", g.Addr)
	if err != nil {
		return err
	}
	g.T.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte("MONITOR\r\n")); err != nil {
		return err
	}
	g.lines = bufio.NewScanner(c)
	if !g.lines.Scan() || g.lines.Text() != "+OK" {
		return fmt.Errorf("MONITOR: %q, %w", g.lines.Text(), g.lines.Err())
	}
	return nil
}

// Count returns how many grants were pushed since its first call.
func (g *GrantCounter) Count(ctx context.Context, admin *goredis.Client) (int64, error) {
	g.once.Do(func() { g.err = g.start() })
	if g.err != nil {
		return 0, g.err
	}
	// The stream of MONITOR is ordered: all grants before the marker are counted.
	marker := fmt.Sprintf("marker-%d", time.Now().UnixNano())
	if err := admin.Echo(ctx, marker).Err(); err != nil {
		return 0, err
	}
	for g.lines.Scan() {
		line := g.lines.Text()
		if strings.Contains(line, marker) {
			return g.n, nil
		}
		if strings.Contains(line, `PUBLISH" "`) && (strings.Contains(line, `" "g `) || strings.Contains(line, `" "s `)) {
			g.n++
		}
	}
	return 0, fmt.Errorf("MONITOR: the stream ended: %w", g.lines.Err())
}

// fenced refuses a token that is less than the greatest before. It compares text: a number
// of Lua is a double, which is exact up to 2^53 only.
var fenced = goredis.NewScript(`
local token, seen = ARGV[1], redis.call('HGET', KEYS[1], 'fence') or '0'
if #token < #seen or #token == #seen and token < seen then return redis.error_reply('stale fencing token') end
redis.call('HSET', KEYS[1], 'fence', token, 'value', token)
return 1`)

// GuardedWrite writes to the guarded resource of a name with a token.
func GuardedWrite(ctx context.Context, admin *goredis.Client, name string, token uint64) error {
	return fenced.Run(ctx, admin, []string{"guarded:" + name}, strconv.FormatUint(token, 10)).Err()
}
