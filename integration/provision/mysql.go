package provision

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The flavours of MySQL and MariaDB that the tests know.
const (
	MariaDB10 = "mariadb-10"
	MariaDB11 = "mariadb-11"
	MySQL9    = "mysql-9"
	// AnyMariaDB is the current version or whatever binary there is, for tests to which the version does not matter.
	AnyMariaDB = "mariadb"
)

// MySQLDatabase is there on every server of these flavours.
const MySQLDatabase = "locks"

// MySQLFlavours returns the flavours that every test against MySQL should run with.
func MySQLFlavours() []string { return []string{MariaDB10, MariaDB11, MySQL9} }

var mysqlKinds = map[string]kind{
	MariaDB10:  mysqlKind(kind{flavour: MariaDB10, extra: true, major: "10", official: "mariadb:10", binaries: []string{"mariadbd", "/usr/sbin/mariadbd"}}),
	MariaDB11:  mysqlKind(kind{flavour: MariaDB11, major: "11", official: "mariadb:11", built: "interlock-test/mariadb:11.8", binaries: []string{"mariadbd", "/usr/sbin/mariadbd"}}),
	AnyMariaDB: mysqlKind(kind{flavour: AnyMariaDB, official: "mariadb:11", built: "interlock-test/mariadb:11.8", binaries: []string{"mariadbd", "/usr/sbin/mariadbd"}}),
	MySQL9:     mysqlKind(kind{flavour: MySQL9, major: "9", official: "mysql:9", built: "interlock-test/mysql:9.7"}),
}

func mysqlKind(k kind) kind {
	k.service, k.port = "mysql", 3306
	k.url, k.probe = mysqlURL, mysqlProbe
	k.binaryVersion = func(output string) string { return firstMatch(mysqlVersion, output) }
	k.args = func(host string, port int, _ string, o Options) []string {
		// The first word is not the server, so the entry point of the official image runs it as it is: a way to
		// give it its environment.
		server := []string{"mariadbd"}
		if k.flavour == MySQL9 {
			server = []string{"mysqld", "--mysqlx=OFF"} // its port would be the same for all servers
		}
		server = append(server, "--bind-address="+host, "--port="+strconv.Itoa(port))
		return slices.Concat([]string{"env", "MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1", "MYSQL_ALLOW_EMPTY_PASSWORD=1", "docker-entrypoint.sh"}, server, mysqlArgs(o))
	}
	return k
}

// MySQLUnsynced are arguments of a server that keeps its data when it is killed, not when the machine is: its commits
// do not wait for the disk, which other tests may keep busy. All else is as by default.
func MySQLUnsynced() []string { return []string{"--innodb-flush-method=nosync"} }

// mysqlArgs make a server small.
func mysqlArgs(o Options) []string {
	args := []string{"--innodb-buffer-pool-size=32M", "--skip-name-resolve", "--innodb-print-all-deadlocks=1", "--max-connections=400", "--performance-schema=OFF", "--skip-log-bin"}
	if o.TLS != nil {
		args = append(args, "--require-secure-transport=ON", "--ssl-ca="+o.TLS.CAFile, "--ssl-cert="+o.TLS.CertFile, "--ssl-key="+o.TLS.KeyFile)
	}
	return args
}

var mysqlVersion = regexp.MustCompile(`Ver (\d+\.\d+\.\d+)`)

// NewMySQL starts a server for this test alone, which may stop, pause, kill and restart it. It keeps its data over a
// restart, and ends with the test. Its root needs no password.
func NewMySQL(t testing.TB, flavour string, o Options) *Server {
	t.Helper()
	k, ok := mysqlKinds[flavour]
	if !ok {
		t.Fatalf("provision: flavour %q: want one of %q", flavour, MySQLFlavours())
	}
	k.leaveOut(t)
	s, err := startMySQL(k, o)
	if err != nil {
		unavailable(t, k, err)
	}
	s.endWith(t)
	record(k.flavour, s.Version, s.Source)
	return s
}

func startMySQL(k kind, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout+2*startTimeout)
	defer cancel()
	var tried []error
	for _, way := range []func(context.Context, kind, Options) (*Server, error){startPresentImage, startInstalledMariaDB, startPulledImage} {
		s, err := way(ctx, k, o)
		if err == nil {
			return s, nil
		}
		tried = append(tried, err)
	}
	return nil, errors.Join(tried...)
}

// startInstalledMariaDB runs the binary of the Debian package mariadb-server-core on files of its own.
func startInstalledMariaDB(ctx context.Context, k kind, o Options) (*Server, error) {
	if len(k.binaries) == 0 {
		return nil, errors.New("binary: none in this version")
	}
	path, err := findBinary(ctx, k)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "interlock-"+k.flavour+"-")
	if err != nil {
		return nil, fmt.Errorf("binary: %w", err)
	}
	data, init := filepath.Join(dir, "data"), filepath.Join(dir, "init.sql")
	// A server that starts deletes all temporary tables in its folder for them, those of other servers too, which then
	// fail or crash: so each has its own.
	tmp := filepath.Join(dir, "tmp")
	args := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + tmp, "--bind-address=127.0.0.1", "--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"), "--init-file=" + init}
	user := []string{}
	if os.Geteuid() == 0 {
		user = []string{"--user=root"} // the files belong to the current user
	}
	err = os.WriteFile(init, []byte("CREATE USER IF NOT EXISTS root@'%';\nGRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"), 0o600)
	if err == nil {
		err = errors.Join(os.Mkdir(data, 0o700), os.Mkdir(tmp, 0o700))
	}
	if err == nil {
		err = installMariaDB(ctx, data, tmp, user)
	}
	var port *reservedPort
	if err == nil {
		port, err = reservePort()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	args = append(append(append(args, user...), "--port="+strconv.Itoa(port.port)), append(mysqlArgs(o), o.Args...)...)
	p := &process{binary: path, args: args, dir: dir, logName: filepath.Join(dir, "server.log")}
	s, err := launch(ctx, k, o, p, port, "binary "+path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
	return s, nil
}

// installMariaDB makes the files of a server in an empty folder.
func installMariaDB(ctx context.Context, data, tmp string, user []string) error {
	install := exec.CommandContext(ctx, "mariadb-install-db", append(slices.Clone(user), "--datadir="+data, "--tmpdir="+tmp, "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M", "--innodb-flush-method=nosync")...)
	out, err := install.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(string(out), "\n") // the end is about where to ask for help
	lines = slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, "ERROR") && !strings.Contains(l, "Warning") })
	return fmt.Errorf("binary: mariadb-install-db: %w\n%s\n%s", err, strings.Join(lines, "\n"), lastLines(string(out)))
}

func mysqlURL(addr string, o Options) string {
	u := url.URL{Scheme: "mysql", Host: addr, Path: "/" + MySQLDatabase, User: url.User("root")}
	if o.Username != "" {
		u.User = url.UserPassword(o.Username, o.Password)
	}
	return u.String()
}

// MySQLPool returns a pool of connections of root, with more settings if they are given.
func MySQLPool(t testing.TB, s *Server, set func(*mysql.Config)) *sql.DB {
	t.Helper()
	db := sql.OpenDB(MySQLConnector(t, s, set))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// MySQLConnector is MySQLPool for a pool that the test makes.
func MySQLConnector(t testing.TB, s *Server, set func(*mysql.Config)) driver.Connector {
	t.Helper()
	c := mysqlConfig(s.Addr(), s.options)
	c.DBName = MySQLDatabase
	if set != nil {
		set(c)
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	return connector
}

func mysqlConfig(addr string, o Options) *mysql.Config {
	c := mysql.NewConfig()
	if o.TLS != nil {
		c.TLS = o.TLS.Client()
	}
	c.Net, c.Addr, c.User, c.Logger = "tcp", addr, "root", &mysql.NopLogger{}
	c.Timeout = 2 * time.Second
	return c
}

// mysqlProbe also makes the database.
func mysqlProbe(ctx context.Context, server string, o Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	u, err := url.Parse(server)
	if err != nil {
		return "", final{err}
	}
	connector, err := mysql.NewConnector(mysqlConfig(u.Host, o))
	if err != nil {
		return "", final{err}
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", err
	}
	if _, err := db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+MySQLDatabase); err != nil {
		return "", err
	}
	version, _, _ = strings.Cut(version, "-")
	return version, nil
}
