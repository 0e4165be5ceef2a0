package provision

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

func TestServerByURL(t *testing.T) {
	k := redisKinds[AnyRedis]
	private := NewRedis(t, AnyRedis, Options{Password: "secret"})
	t.Setenv(k.variable("URL"), private.URL())
	s, err := startShared(k)
	must(t, err)
	if s.Source != "LOCK_TEST_REDIS_URL" || s.Version != private.Version || s.Addr() != private.Addr() {
		t.Errorf("got %s %s at %s", s.Source, s.Version, s.Addr())
	}
	if err := s.Stop(); err == nil {
		t.Error("a server given by URL let a test stop it")
	}

	k.major = "1"
	if _, err := startShared(k); !errors.As(err, &badURL{}) || !strings.Contains(err.Error(), "want 1") {
		t.Errorf("a server of another version: %v, want an error that names both versions", err)
	}
	t.Setenv(k.variable("URL"), "redis://user:secret@host:port/0")
	if _, err := startShared(k); !errors.As(err, &badURL{}) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a malformed URL: %v, want an error without the password", err)
	}
}

func TestRequired(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "all": true, "redis-8": true, "redis": true, "etcd, redis": true, "redis-7": false, "red": false,
	} {
		t.Setenv("LOCK_TEST_REQUIRE", value)
		if got := required("redis-8", "redis"); got != want {
			t.Errorf("LOCK_TEST_REQUIRE=%q requires redis-8: %v, want %v", value, got, want)
		}
	}
}

// skipper records how a test was ended.
type skipper struct {
	testing.TB
	how string
}

func (s *skipper) Helper()                   {}
func (s *skipper) Skipf(f string, a ...any)  { s.end("skip: " + fmt.Sprintf(f, a...)) }
func (s *skipper) Fatalf(f string, a ...any) { s.end("fatal: " + fmt.Sprintf(f, a...)) }

// end keeps the first word: a real test does not get as far as a second.
func (s *skipper) end(how string) {
	if s.how == "" {
		s.how = how
	}
}

func TestUnavailableSaysWhatWasTried(t *testing.T) {
	rows := len(tested.rows)
	k := redisKind(kind{
		flavour: "redis-99", major: "99", official: "localhost:1/no-such-image:99", built: "interlock-test/none:99",
		binaries: []string{"redis-server"},
	})
	for require, how := range map[string]string{"": "skip: ", "redis": "fatal: "} {
		t.Setenv("LOCK_TEST_REQUIRE", require)
		_, err := start(k, Options{})
		if err == nil {
			t.Fatal("started an impossible server")
		}
		s := &skipper{TB: t}
		unavailable(s, k, err)
		for _, part := range []string{how, "redis-99", "interlock-test/none:99", "binary: ", "want 99", "pull localhost:1/no-such-image:99"} {
			if !strings.Contains(s.how, part) {
				t.Errorf("LOCK_TEST_REQUIRE=%q: %q is not in: %s", require, part, s.how)
			}
		}
	}
	tested.rows = tested.rows[:rows] // these were no servers
}

func TestNothingIsLeft(t *testing.T) {
	for _, flavour := range RedisFlavours() {
		var s *Server
		t.Run(flavour, func(t *testing.T) { s = NewRedis(t, flavour, Options{}) })
		switch {
		case s == nil: // skipped, with its reason
		case s.in.running():
			t.Errorf("%s from %s outlived its test", flavour, s.Source)
		}
		if s == nil {
			continue
		}
		switch in := s.in.(type) {
		case *process:
			if err := syscall.Kill(in.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("process %d: %v, want %v", in.cmd.Process.Pid, err, syscall.ESRCH)
			}
			if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
				t.Errorf("folder %s: %v, want none", s.dir, err)
			}
		case *container:
			_, err := in.docker.ContainerInspect(t.Context(), in.tc.GetContainerID(), client.ContainerInspectOptions{})
			if !errdefs.IsNotFound(err) {
				t.Errorf("container %s: %v, want not found", in.tc.GetContainerID(), err)
			}
		}
	}
}

func TestAbandoned(t *testing.T) {
	if abandoned(owner()) {
		t.Error("this process counts as ended")
	}
	cmd := exec.Command("true")
	must(t, cmd.Run())
	ended := fmt.Sprintf("%s/%d/%s", pidSpace(), cmd.Process.Pid, "1")
	if !abandoned(ended) {
		t.Errorf("%q counts as running", ended)
	}
	for _, label := range []string{"", "x", "elsewhere/1/1", pidSpace() + "/x/1", pidSpace() + "/-1/1"} {
		if abandoned(label) {
			t.Errorf("%q counts as ended", label)
		}
	}
}
