// Package counter_test runs one application, examples/counter/services, on every backend: what
// differs is one line of its configuration.
package counter_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/interlock-go/lock/integration/provision"
)

func TestMain(m *testing.M) { provision.Main(m) }

// places returns, for each backend, the line that says where the lock is kept.
var places = map[string]func(t *testing.T) string{
	"memory": func(*testing.T) string { return "mem://counter" },
	"file":   func(t *testing.T) string { return (&url.URL{Scheme: "file", Path: t.TempDir()}).String() },
	"redis":  func(t *testing.T) string { return newRedis(t).URL() },
	"redlock": func(t *testing.T) string {
		return fmt.Sprintf("redlock://%s,%s,%s/0", newRedis(t).Addr(), newRedis(t).Addr(), newRedis(t).Addr())
	},
	"etcd":      func(t *testing.T) string { return provision.NewEtcd(t, provision.AnyEtcd, provision.Options{}).URL() },
	"zookeeper": func(t *testing.T) string { return provision.NewZooKeeper(t, provision.AnyZooKeeper).URL() },
	"postgres":  func(t *testing.T) string { return provision.NewPostgres(t, provision.AnyPostgres).URL() },
	"memcached": func(t *testing.T) string { return provision.NewMemcached(t, provision.Options{}).URL() },
	"nats":      func(t *testing.T) string { return provision.NewNATS(t, provision.NATS2, provision.Options{}).URL() },
	"s3":        func(t *testing.T) string { return provision.NewS3(t, provision.VersityGW, provision.Options{}).URL() },
	"mysql": func(t *testing.T) string {
		return provision.NewMySQL(t, provision.AnyMariaDB, provision.Options{Args: provision.MySQLUnsynced()}).URL()
	},
}

func newRedis(t *testing.T) *provision.Server {
	return provision.NewRedis(t, provision.AnyRedis, provision.Options{})
}

const (
	processes = 4
	each      = 10
)

func TestSameApplication(t *testing.T) {
	t.Parallel()
	app := filepath.Join(t.TempDir(), "counter")
	if out, err := exec.Command("go", "build", "-race", "-o", app, "github.com/interlock-go/lock/examples/counter/services").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(t *testing.T, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), app, append(args, "-processes", fmt.Sprint(processes), "-each", fmt.Sprint(each))...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Run("all", func(t *testing.T) { // so that the binary stays until the last has run
		for name, place := range places {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				config := filepath.Join(dir, "counter.json")
				if err := os.WriteFile(config, fmt.Appendf(nil, `{"ttl": "20s", "url": %q}`, place(t)), 0o600); err != nil {
					t.Fatal(err)
				}
				out, err := run(t, "-config", config)
				if want := fmt.Sprintf("the number is %d: 0 lost\n", processes*each); err != nil || !strings.HasSuffix(out, want) {
					t.Errorf("%v, %q, want %q", err, out, want)
				}
			})
		}
	})
	// That none is lost is the lock's doing.
	out, err := run(t, "-no-lock", "-lockstep")
	if want := fmt.Sprintf("the number is %d: %d lost\n", each, (processes-1)*each); err != nil || !strings.HasSuffix(out, want) {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
}
