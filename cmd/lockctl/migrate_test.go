//go:build unix

package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// A holder excludes clients of its own phase and of the neighbouring phases. It does not
// exclude the phase after next, so those must not run at the same time.
func TestRunMigrate(t *testing.T) {
	t.Parallel()
	old, new := cmdtest.FileURL(t), cmdtest.FileURL(t)
	if ps := cmdtest.Services(t); len(ps) > 1 {
		new = ps[1].URL // two backends
	}
	args := func(phase, name string, more ...string) []string {
		return append([]string{"run", "--url", old, "--migrate-to", new, "--phase", phase, name}, more...)
	}
	phases := []string{"old", "both", "new"}
	for i, p := range phases {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			holder := cmdtest.Begin(t, mode("signals"), args(p, p, "--", self)...)
			holder.Stdout.Contains("ready")
			for k, q := range phases {
				want := lockcmd.ExitNotAcquired
				if max(i-k, k-i) > 1 {
					want = 0 // two holders
				}
				code, out, stderr := cmdtest.Exec(t, nil, append([]string{"run", "--wait", "0"}, args(q, p, "--", "echo", "ran")[1:]...)...)
				if code != want || (out == "ran\n") != (want == 0) {
					t.Errorf("%s beside a holder of %s: exit code %d, stdout %q, stderr %q", q, p, code, out, stderr)
				}
			}
			holder.Send(syscall.SIGTERM)
			if code := holder.Wait(); code != 3 {
				t.Errorf("exit code %d, stderr %q", code, holder.Stderr.All())
			}
			for _, q := range phases { // both services are free again
				if code, _, stderr := cmdtest.Exec(t, nil, append([]string{"run", "--wait", "0"}, args(q, p, "--", "true")[1:]...)...); code != 0 {
					t.Errorf("%s afterwards: exit code %d, stderr %q", q, code, stderr)
				}
			}
		})
	}
}

func TestRunMigrateEnvironment(t *testing.T) {
	t.Parallel()
	old, new := cmdtest.FileURL(t), cmdtest.FileURL(t)
	const show = `echo "$LOCK_NAME|$LOCK_TOKEN|$LOCK_OWNER|$LOCK_TOKEN_OLD|$LOCK_TOKEN_NEW|$LOCK_OWNER_OLD|$LOCK_OWNER_NEW"`
	for phase, single := range map[string]bool{"old": true, "both": false, "new": true} {
		code, out, stderr := cmdtest.Exec(t, []string{"LOCK_TOKEN=stale", "LOCK_OWNER=stale", "LOCK_TOKEN_OLD=stale", "LOCK_OWNER_NEW=stale"},
			"run", "--url", old, "--migrate-to", new, "--phase", phase, "n", "--", "sh", "-c", show)
		f := strings.Split(strings.TrimSpace(out), "|")
		if code != 0 || len(f) != 7 || f[0] != "n" {
			t.Fatalf("%s: exit code %d, stdout %q, stderr %q", phase, code, out, stderr)
		}
		for i, isSet := range []bool{single, single, !single, !single, !single, !single} {
			if (f[i+1] != "") != isSet || f[i+1] == "stale" {
				t.Errorf("%s: the command saw %q", phase, out)
			}
		}
		for i, isToken := range []bool{single, false, !single, !single} {
			if _, err := strconv.ParseUint(f[i+1], 10, 64); (err == nil) != isToken && f[i+1] != "" && i != 1 {
				t.Errorf("%s: the command saw token %q", phase, f[i+1])
			}
		}
	}
}

// The loss of either lock ends the command, and the other lock is released.
func TestRunMigrateLosesEither(t *testing.T) {
	t.Parallel()
	for i, which := range []string{"old", "new"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			urls := []string{cmdtest.FileURL(t), cmdtest.FileURL(t)}
			r := cmdtest.Begin(t, mode("signals"), "run", "--url", urls[0], "--migrate-to", urls[1], "--phase", "both", "x", "--", self)
			r.Stdout.Contains("ready")
			if code, _, stderr := cmdtest.Exec(t, nil, "break", "--url", urls[i], "--yes", "x"); code != 0 {
				t.Fatalf("break: %d %q", code, stderr)
			}
			if code := r.Wait(); code != lockcmd.ExitLost || !strings.Contains(r.Stdout.All(), "terminated") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, r.Stdout.Text(), r.Stderr.All())
			}
			for _, u := range urls {
				if code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", u, "--wait", "10s", "x", "--", "true"); code != 0 {
					t.Errorf("afterwards: exit code %d, stderr %q", code, stderr)
				}
			}
		})
	}
}

// In phase both a waiter shows the holder of the lock that it waits for.
func TestRunMigrateSaysWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	old, new := cmdtest.FileURL(t), cmdtest.FileURL(t)
	holder := cmdtest.Begin(t, mode("signals"), "run", "--url", new, "--as", "the new one", "x", "--", self)
	holder.Stdout.Contains("ready")
	waiter := cmdtest.Begin(t, nil, "run", "--url", old, "--migrate-to", new, "--phase", "both", "x", "--", "echo", "ran")
	waiter.Stderr.Contains(`waiting for "x": held by the new one`)
	holder.Send(syscall.SIGTERM)
	if code := waiter.Wait(); code != 0 || waiter.Stdout.All() != "ran\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, waiter.Stdout.Text(), waiter.Stderr.All())
	}
}

func TestRunMigrateUsage(t *testing.T) {
	t.Parallel()
	old, new := cmdtest.FileURL(t), cmdtest.FileURL(t)
	for says, args := range map[string][]string{
		"go together":                 {"--migrate-to", new},
		"want both or none":           {"--phase", "old"},
		`invalid --phase "middle"`:    {"--migrate-to", new, "--phase", "middle"},
		"the URL of the lock already": {"--migrate-to", old, "--phase", "both"},
		"no scheme":                   {"--migrate-to", "nowhere", "--phase", "old"},
		"redis+cluster":               {"--migrate-to", "gopher://x", "--phase", "both"},
	} {
		code, out, stderr := cmdtest.Exec(t, nil, append(append([]string{"run", "--url", old}, args...), "x", "--", "true")...)
		if code != lockcmd.ExitUsage || out != "" || !strings.Contains(stderr, says) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
	code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", old, "--migrate-to", fmt.Sprintf("redis://user:s3cr3t@127.0.0.1:%d/0", clienttest.FreePort()), "--phase", "both", "x", "--", "true")
	if code != lockcmd.ExitUnavailable || strings.Contains(stderr, "s3cr3t") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
