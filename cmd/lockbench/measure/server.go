package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// Watch sets the version of the service and the functions that read its counters, as far
// as the service of url has counters that the user of url may read. The counts include
// those of other clients.
func (t *Target) Watch(ctx context.Context, url string) error {
	u, err := backend.ParseURL(url)
	if err != nil {
		return err
	}
	if u.Scheme == "file" {
		t.Stored = func(context.Context) (int64, error) { return countFiles(u.Path) }
	}
	watch, ok := watchers[u.Scheme]
	if !ok || len(u.Hosts) == 0 {
		return nil
	}
	return watch(ctx, t, u)
}

func countFiles(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile, or not yet there
		}
		n++
		return err
	})
	return n, err
}

var watchers = map[string]func(context.Context, *Target, *backend.URL) error{
	"redis": watchRedis, "etcd": watchEtcd, "zk": watchZooKeeper, "mysql": watchMySQL,
	"postgres": watchPostgres, "postgresql": watchPostgres, "memcached": watchMemcached,
}

func hostPort(u *backend.URL) string { return backend.HostPort(u.Hosts[0], ports[u.Scheme]) }

func userOf(u *backend.URL) (user, password string) {
	if u.User != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
	}
	return user, password
}

func database(u *backend.URL) int {
	n, _ := strconv.Atoi(strings.Trim(u.Path, "/")) // the driver reports what is no number
	return n
}

// watchRedis counts scripts, which execute all operations, and WAIT.
func watchRedis(ctx context.Context, t *Target, u *backend.URL) error {
	user, password := userOf(u)
	c := redis.NewClient(&redis.Options{Addr: hostPort(u), Username: user, Password: password, MaxRetries: -1, PoolSize: 1, DB: database(u)})
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		_ = c.Close()
		return err
	}
	t.Version = "Redis " + firstLine(info, "redis_version")
	if v := firstLine(info, "valkey_version"); v != "" {
		t.Version = "Valkey " + v
	}
	t.Operations = func(ctx context.Context) (int64, error) {
		stats, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, err
		}
		var n int64
		for line := range strings.Lines(stats) {
			// The commands in a script are counted too, but they are part of it.
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			switch name {
			case "evalsha", "eval", "wait":
			default:
				continue
			}
			calls, _, _ := strings.Cut(rest, ",")
			v, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("INFO commandstats: %w", err)
			}
			n += v
		}
		return n, nil
	}
	t.Stored = func(ctx context.Context) (int64, error) { return c.DBSize(ctx).Result() }
	t.closes(func() { _ = c.Close() })
	return nil
}

func (t *Target) closes(f func()) {
	before := t.Close
	t.Close = func() {
		if before != nil {
			before()
		}
		f()
	}
}

// watchEtcd counts the RPCs, the bytes written and the keys of one node by its metrics.
func watchEtcd(ctx context.Context, t *Target, u *backend.URL) error {
	metrics := "http://" + hostPort(u) + "/metrics"
	read := func(ctx context.Context, each func(name, labels string, value float64)) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("metrics: %s", resp.Status)
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			text := lines.Text()
			at := strings.LastIndexByte(text, ' ')
			if at < 0 {
				continue
			}
			name, labels, _ := strings.Cut(strings.TrimSuffix(text[:at], "}"), "{")
			if v, err := strconv.ParseFloat(text[at+1:], 64); err == nil {
				each(name, labels, v)
			}
		}
		return lines.Err()
	}
	err := read(ctx, func(name, labels string, _ float64) {
		if name == "etcd_server_version" {
			t.Version = "etcd " + strings.Trim(strings.TrimPrefix(labels, "server_version="), `"`)
		}
	})
	if err != nil {
		return err
	}
	sum := func(metric string) func(context.Context) (int64, error) {
		return func(ctx context.Context) (int64, error) {
			var n int64
			err := read(ctx, func(name, labels string, v float64) {
				if name == metric && !strings.Contains(labels, "Maintenance") {
					n += int64(v)
				}
			})
			return n, err
		}
	}
	t.Operations = sum("grpc_server_msg_received_total")
	t.Written = sum("etcd_disk_wal_write_bytes_total")
	t.Stored = sum("etcd_debugging_mvcc_keys_total")
	return nil
}

// watchZooKeeper counts the packets that one server received and its nodes, by its command
// srvr.
func watchZooKeeper(ctx context.Context, t *Target, u *backend.URL) error {
	request := func(ctx context.Context) (string, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		conn, err := d.DialContext(ctx, "tcp", hostPort(u))
		if err != nil {
			return "", err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(conn, "srvr"); err != nil {
			return "", err
		}
		reply, err := io.ReadAll(conn)
		return string(reply), err
	}
	reply, err := request(ctx)
	if err != nil {
		return err
	}
	v, _, _ := strings.Cut(firstLine(reply, "Zookeeper version"), "-")
	if v == "" {
		return errors.New("the server does not execute srvr (4lw.commands.whitelist)")
	}
	t.Version = "ZooKeeper " + v
	line := func(key string) func(context.Context) (int64, error) {
		return func(ctx context.Context) (int64, error) {
			reply, err := request(ctx)
			if err != nil {
				return 0, err
			}
			return strconv.ParseInt(firstLine(reply, key), 10, 64)
		}
	}
	t.Operations, t.Stored = line("Received"), line("Node count")
	return nil
}
