package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The flavours of PostgreSQL that the tests know.
const (
	Postgres15 = "postgres-15"
	Postgres18 = "postgres-18"
	// AnyPostgres is the current version or whatever binary there is, for tests to which the version does not matter.
	AnyPostgres = "postgres"
)

// PostgresFlavours returns the flavours that every test against PostgreSQL should run with.
func PostgresFlavours() []string { return []string{Postgres15, Postgres18} }

var postgresKinds = map[string]kind{
	Postgres15:  postgresKind(kind{flavour: Postgres15, extra: true, major: "15", official: "postgres:15"}),
	Postgres18:  postgresKind(kind{flavour: Postgres18, major: "18", official: "postgres:18", built: "interlock-test/postgres:18"}),
	AnyPostgres: postgresKind(kind{flavour: AnyPostgres, official: "postgres:18", built: "interlock-test/postgres:18"}),
}

func postgresKind(k kind) kind {
	k.service = "postgres"
	k.port = 5432
	k.binaries, _ = filepath.Glob("/usr/lib/postgresql/" + cmp.Or(k.major, "*") + "/bin/postgres")
	k.binaries = append(k.binaries, "postgres")
	k.binaryVersion = func(output string) string { return firstMatch(postgresVersion, output) }
	k.url = func(addr string, _ Options) string {
		u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addr, Path: "/postgres"}
		return u.String()
	}
	k.probe = postgresProbe
	return k
}

var postgresVersion = regexp.MustCompile(`PostgreSQL\) (\d+\.\d+)`)

// PostgresURL adds what a client without TLS needs.
func (s *Server) PostgresURL() string { return s.URL() + "?sslmode=disable" }

func postgresProbe(ctx context.Context, server string, _ Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, server+"?sslmode=disable")
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	var version string
	err = c.QueryRow(ctx, "SHOW server_version").Scan(&version)
	version, _, _ = strings.Cut(version, " ")
	return version, err
}

// postgresSettings are those of a small server with a counter of statements.
func postgresSettings(host string, port int, extra []string) []string {
	args := []string{"-h", host, "-p", strconv.Itoa(port), "-k", ""}
	for _, s := range append([]string{
		"max_connections=500", "shared_buffers=32MB", "shared_preload_libraries=pg_stat_statements",
		"pg_stat_statements.track_utility=off", "pg_stat_statements.max=1000", "max_wal_size=256MB", "autovacuum_naptime=30s",
	}, extra...) {
		args = append(args, "-c", s)
	}
	return args
}

// PostgresUnsynced is a setting of a server that keeps its data when it is killed, not when the machine is: its commits
// do not wait for the disk, which other tests may keep busy.
const PostgresUnsynced = "fsync=off"

// NewPostgres starts a server for this test alone, with further settings such as "fsync=off". It trusts every user,
// keeps its data over a restart, and ends with the test.
func NewPostgres(t testing.TB, flavour string, settings ...string) *Server {
	t.Helper()
	k, ok := postgresKinds[flavour]
	if !ok {
		t.Fatalf("provision: flavour %q: want %q, %q or %q", flavour, Postgres15, Postgres18, AnyPostgres)
	}
	k.leaveOut(t)
	s, err := startPostgres(k, t.TempDir(), settings)
	if err != nil {
		unavailable(t, k, err)
	}
	s.endWith(t)
	record(k.flavour, s.Version, s.Source)
	return s
}

func startPostgres(k kind, dir string, settings []string) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout+2*startTimeout)
	defer cancel()
	// In a container the images' own start-up wants variables; this needs none, and serves any image with the binaries.
	file := filepath.Join(dir, "serve.sh")
	script := `set -e
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
d=/var/lib/interlock # the image that hack/setup.sh builds has a cluster there
if [ ! -e $d/PG_VERSION ]; then
	mkdir -p $d
	chown postgres $d
	setpriv --reuid postgres --regid postgres --clear-groups initdb -D $d -A trust -U postgres -E UTF8 --no-sync >/dev/null
	echo 'host all all all trust' >>$d/pg_hba.conf
fi
exec setpriv --reuid postgres --regid postgres --clear-groups postgres -D $d "$@"
`
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return nil, err
	}
	k.args = func(host string, port int, _ string, _ Options) []string {
		return append([]string{"sh", file}, postgresSettings(host, port, settings)...)
	}
	o := Options{Files: []string{file}}
	var tried []error
	for _, way := range []func() (*Server, error){
		func() (*Server, error) { return startPresentImage(ctx, k, o) },
		func() (*Server, error) { return startInstalledPostgres(ctx, k, settings) },
		func() (*Server, error) { return startPulledImage(ctx, k, o) },
	} {
		s, err := way()
		if err == nil {
			return s, nil
		}
		tried = append(tried, err)
	}
	return nil, errors.Join(tried...)
}

// startInstalledPostgres makes a cluster of its own with the installed version and serves it as a process. The server
// refuses to be root, so root becomes the user that the package made.
func startInstalledPostgres(ctx context.Context, k kind, settings []string) (*Server, error) {
	binary, err := findBinary(ctx, k)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "interlock-"+k.flavour+"-")
	if err != nil {
		return nil, fmt.Errorf("binary: %w", err)
	}
	s, err := launchPostgres(ctx, k, binary, dir, settings)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
	return s, nil
}

func launchPostgres(ctx context.Context, k kind, binary, dir string, settings []string) (*Server, error) {
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	var as []string
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("binary: the server refuses to be root: %w", err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := errors.Join(os.Chmod(dir, 0o711), os.Chown(data, uid, gid)); err != nil { //nolint:gosec // to be passed through
			return nil, err
		}
		// the change of user would undo what ties the process to the test
		as = []string{"setpriv", "--reuid", u.Uid, "--regid", u.Gid, "--clear-groups", "--pdeathsig", "KILL"}
	}
	initdb := append(slices.Clone(as), filepath.Join(filepath.Dir(binary), "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")
	cmd := exec.CommandContext(ctx, initdb[0], initdb[1:]...)
	cmd.Dir = data
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("binary: initdb: %w: %s", err, out)
	}
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	args := append(append(as, binary, "-D", data), postgresSettings("127.0.0.1", port.port, settings)...)
	p := &postgresProcess{&process{binary: args[0], args: args[1:], dir: dir, logName: dir + "/server.log"}}
	return launch(ctx, k, Options{}, p, port, "binary "+binary)
}

// postgresProcess is a server of several processes, which hang and die together.
type postgresProcess struct{ *process }

// all returns the pids of the server, its first process first.
func (p *postgresProcess) all() []int {
	proc, _ := p.current()
	if proc == nil {
		return nil
	}
	pids := []int{proc.Pid}
	out, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", proc.Pid, proc.Pid))
	if err != nil {
		return pids
	}
	for _, f := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *postgresProcess) pause(ctx context.Context) error {
	if err := p.process.pause(ctx); err != nil { // from now on it starts none
		return err
	}
	return p.signalRest(syscall.SIGSTOP)
}

func (p *postgresProcess) resume(ctx context.Context) error {
	return errors.Join(p.signalRest(syscall.SIGCONT), p.process.resume(ctx))
}

func (p *postgresProcess) signalRest(sig syscall.Signal) error {
	pids := p.all()
	for i, pid := range pids {
		if i == 0 {
			continue
		}
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

func (p *postgresProcess) kill(ctx context.Context) error {
	if !p.running() {
		return nil
	}
	if err := p.process.pause(ctx); err != nil {
		return err
	}
	pids := p.all()
	err := errors.Join(p.signalRest(syscall.SIGKILL), p.process.kill(ctx))
	if err != nil {
		return err
	}
	// it does not start again while one of them is there
	return until(ctx, func(context.Context) error {
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil {
				if start := startOf(pid); start != "ended" && start != "" {
					return fmt.Errorf("process %d has not ended", pid)
				}
			}
		}
		return nil
	})
}

func (p *postgresProcess) stop(ctx context.Context) error {
	if !p.running() {
		return nil
	}
	// SIGINT: at once, without waiting for clients to leave; SIGTERM would
	if err := errors.Join(p.signalRest(syscall.SIGCONT), p.signal(syscall.SIGCONT), p.signal(syscall.SIGINT)); err != nil && p.running() {
		return err
	}
	_, exited := p.current()
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill(context.WithoutCancel(ctx)))
	}
}

func (p *postgresProcess) remove(ctx context.Context) error { return p.kill(ctx) }

// RestartAsStandby stops s and starts it again in recovery, as a standby that has no primary to follow. SQL's
// pg_promote ends that. It skips the test where the server's files are out of reach.
func RestartAsStandby(t testing.TB, s *Server) error {
	t.Helper()
	if s.dir == "" {
		t.Skipf("%s: %s: its files are out of reach", s.Flavour, s.Source)
	}
	if err := s.Stop(); err != nil {
		return err
	}
	file := filepath.Join(s.dir, "data", "standby.signal")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok { // the server's user
		if err := os.Chown(file, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return s.Restart(ctx)
}
