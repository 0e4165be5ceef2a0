package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// PgBouncer is the flavour of the pooler in front of PostgreSQL.
const PgBouncer = "pgbouncer"

var pgBouncerVersion = regexp.MustCompile(`PgBouncer (\d+\.\d+(?:\.\d+)?)`)

// NewPgBouncer starts a pooler in front of s, in transaction mode unless settings such as "pool_mode=session" say
// otherwise. It is a process, lets the user postgres in, and ends with the test.
func NewPgBouncer(t testing.TB, s *Server, settings ...string) *Server {
	t.Helper()
	LeaveOut(t, "PgBouncer")
	k := kind{flavour: PgBouncer, service: PgBouncer, binaries: []string{"/usr/sbin/pgbouncer", "pgbouncer"}}
	k.binaryVersion = func(output string) string { return firstMatch(pgBouncerVersion, output) }
	k.url = postgresKinds[Postgres15].url
	k.probe = pgBouncerProbe
	p, err := startPgBouncer(k, s.Addr(), settings)
	if err != nil {
		unavailable(t, k, err)
	}
	p.endWith(t)
	record(k.flavour, p.Version, p.Source)
	return p
}

func startPgBouncer(k kind, upstream string, settings []string) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	binary, err := findBinary(ctx, k)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "interlock-"+k.flavour+"-")
	if err != nil {
		return nil, fmt.Errorf("binary: %w", err)
	}
	port, err := reservePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p, err := pgBouncerProcess(binary, dir, port.port, upstream, settings)
	if err != nil {
		port.release()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := launch(ctx, k, Options{}, p, port, "binary "+binary)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
	return s, nil
}

func pgBouncerProcess(binary, dir string, port int, upstream string, settings []string) (*process, error) {
	host, upstreamPort, err := net.SplitHostPort(upstream)
	if err != nil {
		return nil, err
	}
	ini, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "users.txt")
	config := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\n", host, upstreamPort) + strings.Join(append([]string{
		"listen_addr=127.0.0.1", "listen_port=" + strconv.Itoa(port), "unix_socket_dir=", "auth_type=trust", "auth_file=" + users,
		"admin_users=postgres", "pool_mode=transaction", "default_pool_size=60", "max_client_conn=1000",
		"server_login_retry=1", // after a restart of the server, not the usual 15 s
		"log_connections=0", "log_disconnections=0",
	}, settings...), "\n") + "\n"
	if err := errors.Join(os.WriteFile(ini, []byte(config), 0o600), os.WriteFile(users, []byte("\"postgres\" \"\"\n"), 0o600)); err != nil {
		return nil, err
	}
	args := []string{binary, ini}
	if os.Getuid() == 0 { // which it refuses to be
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("binary: %w", err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := errors.Join(os.Chown(dir, uid, gid), os.Chown(ini, uid, gid), os.Chown(users, uid, gid)); err != nil {
			return nil, err
		}
		args = append([]string{"setpriv", "--reuid", u.Uid, "--regid", u.Gid, "--clear-groups", "--pdeathsig", "KILL"}, args...)
	}
	return &process{binary: args[0], args: args[1:], dir: dir, logName: dir + "/server.log"}, nil
}

// pgBouncerProbe asks the pooler for its version, and the server behind it for an answer.
func pgBouncerProbe(ctx context.Context, server string, _ Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ask := func(url, sql string) ([]byte, error) {
		c, err := pgconn.Connect(ctx, url+"?sslmode=disable")
		if err != nil {
			return nil, err
		}
		defer func() { _ = c.Close(ctx) }()
		r, err := c.Exec(ctx, sql).ReadAll()
		if err != nil || len(r) == 0 || len(r[0].Rows) == 0 {
			return nil, fmt.Errorf("%s: no answer, %w", sql, err)
		}
		return r[0].Rows[0][0], nil
	}
	if _, err := ask(server, "SELECT 1"); err != nil {
		return "", err
	}
	version, err := ask(strings.TrimSuffix(server, "postgres")+"pgbouncer", "SHOW VERSION")
	return firstMatch(pgBouncerVersion, string(version)), err
}
