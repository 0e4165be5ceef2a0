//go:build unix

package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A holder of one phase keeps out those of its own and of the neighbouring phases; those
// of the other do not see it, which is why they must not run at the same time.
func TestRunMigrate(t *testing.T) {
	t.Parallel()
	old, new := fileURL(t), fileURL(t)
	if ps := places(t); len(ps) > 1 {
		new = ps[1].url // two backends
	}
	args := func(phase, name string, more ...string) []string {
		return append([]string{"run", "--url", old, "--migrate-to", new, "--phase", phase, name}, more...)
	}
	phases := []string{"old", "both", "new"}
	for i, p := range phases {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			holder := begin(t, does("signals"), args(p, p, "--", self)...)
			holder.stdout.contains("ready")
			for k, q := range phases {
				want := codeNotAcquired
				if max(i-k, k-i) > 1 {
					want = 0 // two holders
				}
				code, out, stderr := lockctl(t, nil, append([]string{"run", "--wait", "0"}, args(q, p, "--", "echo", "ran")[1:]...)...)
				if code != want || (out == "ran\n") != (want == 0) {
					t.Errorf("%s beside a holder of %s: exit code %d, stdout %q, stderr %q", q, p, code, out, stderr)
				}
			}
			holder.send(syscall.SIGTERM)
			if code := holder.wait(); code != 3 {
				t.Errorf("exit code %d, stderr %q", code, holder.stderr.all())
			}
			for _, q := range phases { // nothing is left behind in either place
				if code, _, stderr := lockctl(t, nil, append([]string{"run", "--wait", "0"}, args(q, p, "--", "true")[1:]...)...); code != 0 {
					t.Errorf("%s afterwards: exit code %d, stderr %q", q, code, stderr)
				}
			}
		})
	}
}

func TestRunMigrateEnvironment(t *testing.T) {
	t.Parallel()
	old, new := fileURL(t), fileURL(t)
	const show = `echo "$LOCK_NAME|$LOCK_TOKEN|$LOCK_OWNER|$LOCK_TOKEN_OLD|$LOCK_TOKEN_NEW|$LOCK_OWNER_OLD|$LOCK_OWNER_NEW"`
	for phase, single := range map[string]bool{"old": true, "both": false, "new": true} {
		code, out, stderr := lockctl(t, []string{"LOCK_TOKEN=stale", "LOCK_OWNER=stale", "LOCK_TOKEN_OLD=stale", "LOCK_OWNER_NEW=stale"},
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

// A loss of either ends the command, and the other is freed.
func TestRunMigrateLosesEither(t *testing.T) {
	t.Parallel()
	for i, which := range []string{"old", "new"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			urls := []string{fileURL(t), fileURL(t)}
			r := begin(t, does("signals"), "run", "--url", urls[0], "--migrate-to", urls[1], "--phase", "both", "x", "--", self)
			r.stdout.contains("ready")
			if code, _, stderr := lockctl(t, nil, "break", "--url", urls[i], "--yes", "x"); code != 0 {
				t.Fatalf("break: %d %q", code, stderr)
			}
			if code := r.wait(); code != codeLost || !strings.Contains(r.stdout.all(), "terminated") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, r.stdout.text(), r.stderr.all())
			}
			for _, u := range urls {
				if code, _, stderr := lockctl(t, nil, "run", "--url", u, "--wait", "10s", "x", "--", "true"); code != 0 {
					t.Errorf("afterwards: exit code %d, stderr %q", code, stderr)
				}
			}
		})
	}
}

// Who waits in the phase of both says who holds the one that is waited for.
func TestRunMigrateSaysWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	old, new := fileURL(t), fileURL(t)
	holder := begin(t, does("signals"), "run", "--url", new, "--as", "the new one", "x", "--", self)
	holder.stdout.contains("ready")
	waiter := begin(t, nil, "run", "--url", old, "--migrate-to", new, "--phase", "both", "x", "--", "echo", "ran")
	waiter.stderr.contains(`waiting for "x": held by the new one`)
	holder.send(syscall.SIGTERM)
	if code := waiter.wait(); code != 0 || waiter.stdout.all() != "ran\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, waiter.stdout.text(), waiter.stderr.all())
	}
}

func TestRunMigrateUsage(t *testing.T) {
	t.Parallel()
	old, new := fileURL(t), fileURL(t)
	for says, args := range map[string][]string{
		"go together":               {"--migrate-to", new},
		"want both or none":         {"--phase", "old"},
		`invalid --phase "middle"`:  {"--migrate-to", new, "--phase", "middle"},
		"where the lock is already": {"--migrate-to", old, "--phase", "both"},
		"no scheme":                 {"--migrate-to", "nowhere", "--phase", "old"},
		"redis+cluster":             {"--migrate-to", "gopher://x", "--phase", "both"},
	} {
		code, out, stderr := lockctl(t, nil, append(append([]string{"run", "--url", old}, args...), "x", "--", "true")...)
		if code != codeUsage || out != "" || !strings.Contains(stderr, says) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
	code, _, stderr := lockctl(t, nil, "run", "--url", old, "--migrate-to", fmt.Sprintf("redis://user:s3cr3t@127.0.0.1:%d/0", freePort(t)), "--phase", "both", "x", "--", "true")
	if code != codeUnavailable || strings.Contains(stderr, "s3cr3t") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
