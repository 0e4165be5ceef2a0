//go:build unix

package main

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// With --held inspect says whether a lock is held by its exit code.
func TestInspectExitCode(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			holder := cmdtest.Begin(t, mode("signals"), "run", "--url", p.URL, "held", "--", self)
			holder.Stdout.Contains("ready")
			for args, want := range map[string]int{
				"inspect held": 0, "inspect free": 0,
				"inspect --held held": 0, "inspect --held free": lockcmd.ExitFailed,
				"inspect --held -o json free": lockcmd.ExitFailed, "inspect --held=false free": 0,
			} {
				code, out, stderr := cmdtest.Exec(t, nil, append(strings.Fields(args), "--url", p.URL)...)
				if code != want || stderr != "" || !strings.Contains(out, "held") && !strings.Contains(out, "free") {
					t.Errorf("%s: exit code %d, want %d; stdout %q, stderr %q", args, code, want, out, stderr)
				}
			}
		})
	}
}

// The flag --timeout bounds a question to a service that does not answer.
func TestQueryTimeout(t *testing.T) {
	t.Parallel()
	s := cmdtest.RequireRedis(t)
	for _, command := range []string{"inspect x", "list", "ping", "break --yes x"} {
		args := append(strings.Fields(command), "--url", s.URL, "--timeout")
		if code, _, stderr := cmdtest.Exec(t, nil, append(args, "10s")...); code != 0 || stderr != "" {
			t.Errorf("%s: exit code %d, stderr %q", command, code, stderr)
		}
		if code, _, stderr := cmdtest.Exec(t, nil, append(args, "0")...); code != lockcmd.ExitUsage || !strings.Contains(stderr, "want a positive duration") {
			t.Errorf("%s --timeout 0: exit code %d, stderr %q", command, code, stderr)
		}
	}
	s.Signal(t, syscall.SIGSTOP)
	for _, command := range []string{"inspect --held x", "list", "ping", "break --yes x"} {
		silent(t, append(strings.Fields(command), "--url", s.URL)...)
	}
}

// The error of --timeout names the flag with each driver.
func TestQueryTimeoutOfEachService(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, url := range []string{"redis://%s/0", "redis+cluster://%s", "redis+sentinel://%s/m", "redlock://%[1]s,127.0.0.2:1,127.0.0.3:1", "etcd://%s", "zk://%s/c", "postgres://u@%s/d", "mysql://u@%s/d"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			silent(t, "inspect", "x", "--url", fmt.Sprintf(url, l.Addr()))
		})
	}
}

// silent runs a command against a service that does not answer.
func silent(t *testing.T, args ...string) {
	t.Helper()
	began := time.Now()
	code, out, stderr := cmdtest.Exec(t, nil, append(args, "--timeout", "300ms")...)
	took := time.Since(began)
	if code != lockcmd.ExitUnavailable || out != "" || strings.Count(stderr, "\n") != 1 || took < 300*time.Millisecond || !strings.Contains(stderr, "no answer within --timeout 300ms: ") {
		t.Errorf("%q: exit code %d after %v, stdout %q, stderr %q", args, code, took, out, stderr)
	}
}

// No command accepts a lock in memory.
func TestMemoryIsRefused(t *testing.T) {
	t.Parallel()
	file := cmdtest.FileURL(t)
	for _, args := range []string{
		"run x -- true", "run --url " + file + " --migrate-to mem://y --phase both x -- true", "elect x -- true", "inspect x", "list", "watch x", "top", "ping", "break --yes x",
	} {
		code, out, stderr := cmdtest.Exec(t, []string{"LOCK_URL=mem://y"}, strings.Fields(args)...)
		if code != lockcmd.ExitUsage || out != "" || !strings.HasPrefix(stderr, "lockctl: invalid URL mem://y: a lock in memory excludes no other process, ") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
}
