package measure

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// watchMemcached counts the commands and the items of the first server, by its command stats.
func watchMemcached(ctx context.Context, t *Target, u *backend.URL) error {
	if u.User != nil {
		return errors.New("the counters of a server with --auth-file are not read")
	}
	first, err := memcachedStats(ctx, hostPort(u))
	if err != nil {
		return err
	}
	t.Version = "Memcached " + first["version"]
	sum := func(counts func(stat string) bool) func(context.Context) (int64, error) {
		return func(ctx context.Context) (int64, error) {
			stats, err := memcachedStats(ctx, hostPort(u))
			if err != nil {
				return 0, err
			}
			var n int64
			for stat, value := range stats {
				if counts(stat) {
					v, err := strconv.ParseInt(value, 10, 64)
					if err != nil {
						return 0, err
					}
					n += v
				}
			}
			return n, nil
		}
	}
	t.Operations = sum(func(stat string) bool { return strings.HasPrefix(stat, "cmd_") })
	t.Stored = sum(func(stat string) bool { return stat == "curr_items" })
	return nil
}

func memcachedStats(ctx context.Context, addr string) (map[string]string, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("stats\r\n")); err != nil {
		return nil, err
	}
	stats := map[string]string{}
	lines := bufio.NewScanner(conn)
	for lines.Scan() && lines.Text() != "END" {
		if word := strings.Fields(lines.Text()); len(word) == 3 && word[0] == "STAT" {
			stats[word[1]] = word[2]
		}
	}
	return stats, lines.Err()
}
