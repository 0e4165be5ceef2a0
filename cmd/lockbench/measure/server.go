package measure

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// Watch sets the version of the service and counts the operations of the server, if the
// service of url has a counter that the user of url may read. The count includes the
// operations of other clients.
func (t *Target) Watch(ctx context.Context, url string) error {
	u, err := backend.ParseURL(url)
	if err != nil {
		return err
	}
	watch, ok := watchers[u.Scheme]
	if !ok || len(u.Hosts) == 0 {
		return nil
	}
	return watch(ctx, t, u)
}

var watchers = map[string]func(context.Context, *Target, *backend.URL) error{
	"redis": watchRedis, "etcd": watchEtcd, "zk": watchZooKeeper, "mysql": watchMySQL,
	"postgres": watchPostgres, "postgresql": watchPostgres,
}

func hostPort(u *backend.URL) string {
	h := u.Hosts[0]
	if _, _, err := net.SplitHostPort(h); err != nil {
		h = net.JoinHostPort(strings.Trim(h, "[]"), ports[u.Scheme])
	}
	return h
}

func userOf(u *backend.URL) (user, password string) {
	if u.User != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
	}
	return user, password
}

// watchRedis counts scripts, which execute all operations, and WAIT.
func watchRedis(ctx context.Context, t *Target, u *backend.URL) error {
	user, password := userOf(u)
	c := redis.NewClient(&redis.Options{Addr: hostPort(u), Username: user, Password: password, MaxRetries: -1, PoolSize: 1})
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

// watchEtcd counts the RPCs of one node by its metrics.
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
			head, tail, ok := strings.Cut(lines.Text(), "} ")
			name, labels, labelled := strings.Cut(head, "{")
			if v, err := strconv.ParseFloat(tail, 64); ok && labelled && err == nil {
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
	t.Operations = func(ctx context.Context) (int64, error) {
		var n int64
		err := read(ctx, func(name, labels string, v float64) {
			if name == "grpc_server_msg_received_total" && !strings.Contains(labels, "Maintenance") {
				n += int64(v)
			}
		})
		return n, err
	}
	return nil
}

// watchZooKeeper counts the packets that one server received, by its command srvr.
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
	t.Operations = func(ctx context.Context) (int64, error) {
		reply, err := request(ctx)
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(firstLine(reply, "Received"), 10, 64)
	}
	return nil
}

// watchMySQL counts statements, by the status variable Questions.
func watchMySQL(ctx context.Context, t *Target, u *backend.URL) error {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", hostPort(u), strings.TrimPrefix(u.Path, "/")
	c.User, c.Passwd = userOf(u)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&t.Version); err != nil {
		_ = db.Close()
		return err
	}
	if !strings.Contains(t.Version, "MariaDB") {
		t.Version = "MySQL " + t.Version
	}
	t.Operations = func(ctx context.Context) (int64, error) {
		var name string
		var n int64
		err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
		return n, err
	}
	t.closes(func() { _ = db.Close() })
	return nil
}

// watchPostgres counts the transactions of the server that write, by their ids. Each statement of the driver that
// changes a row is one. The statistics of the server also count those that only read, but up to ten seconds late.
func watchPostgres(ctx context.Context, t *Target, u *backend.URL) error {
	c, err := pgx.ParseConfig("")
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(hostPort(u))
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	c.Host, c.Port, c.Database, c.TLSConfig, c.Fallbacks = host, uint16(number), strings.TrimPrefix(u.Path, "/"), nil, nil
	c.User, c.Password = userOf(u)
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	var v string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&v); err != nil {
		_ = conn.Close(ctx)
		return err
	}
	t.Version = "PostgreSQL " + v
	t.Operations = func(ctx context.Context) (int64, error) {
		var n int64
		err := conn.QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&n)
		return n, err
	}
	t.closes(func() { _ = conn.Close(context.Background()) })
	return nil
}
