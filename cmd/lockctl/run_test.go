//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func TestRunTokensRise(t *testing.T) {
	t.Parallel()
	// the first command of the README: no URL at all
	env := []string{"XDG_STATE_HOME=" + t.TempDir()}
	var last uint64
	for range 3 {
		code, out, stderr := lockctl(t, env, "run", "nightly", "--", "sh", "-c", "echo token $LOCK_TOKEN")
		if code != 0 || stderr != "" {
			t.Fatalf("exit code %d, stderr %q", code, stderr)
		}
		token, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(out), "token "), 10, 64)
		if err != nil || token <= last {
			t.Fatalf("%q after token %d", out, last)
		}
		last = token
	}
}

func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			code, out, stderr := lockctl(t,
				[]string{"LOCK_URL=" + p.url, "LOCK_TOKEN=stale", "LOCK_NAME=stale", "LOCK_OWNER=stale"},
				"run", "a name", "--", "sh", "-c", `echo "$LOCK_NAME|$LOCK_TOKEN|$LOCK_OWNER|$LOCK_URL"; env | grep -Ec '^LOCK_(NAME|TOKEN|OWNER)='`)
			if code != 0 {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			f := strings.Split(lines[0], "|")
			if len(f) != 4 || f[0] != "a name" || len(f[2]) != 32 || f[3] != p.url || lines[1] != "3" {
				t.Fatalf("the command saw %q", out)
			}
			if _, err := strconv.ParseUint(f[1], 10, 64); err != nil {
				t.Fatalf("the command saw token %q", f[1])
			}
		})
	}
}

func TestRunPassesStreams(t *testing.T) {
	t.Parallel()
	r := begin(t, nil, "run", "--url", fileURL(t), "x", "--", "sh", "-c", "cat; echo oops >&2")
	fmt.Fprint(r.stdin, "one\ntwo\n")
	r.stdin.Close()
	if code := r.wait(); code != 0 || r.stdout.all() != "one\ntwo\n" || r.stderr.all() != "oops\n" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, r.stdout.text(), r.stderr.text())
	}
}

func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	noInterpreter := filepath.Join(dir, "script")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(noInterpreter, []byte("#!/does/not/exist\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	free := fileURL(t)
	taken := fileURL(t)
	holder := begin(t, does("stubborn"), "run", "--url", taken, "x", "--", self)
	holder.stdout.contains("ready")

	for _, c := range []struct {
		name string
		args []string
		code int
		says string // on stderr; "" for nothing
	}{
		{"success", []string{"run", "--url", free, "x", "--", "true"}, 0, ""},
		{"the command's code", []string{"run", "--url", free, "x", "--", "sh", "-c", "exit 7"}, 7, ""},
		{"the command's signal", []string{"run", "--url", free, "x", "--", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{"taken, one attempt", []string{"run", "--url", taken, "--wait", "0", "x", "--", "true"}, codeNotAcquired, `"x" is held by pid `},
		{"taken, bounded wait", []string{"run", "-q", "--url", taken, "--wait", "3s", "x", "--", "true"}, codeNotAcquired, `"x" was not acquired within 3s: when the wait began it was held by pid `},
		{"not found", []string{"run", "--url", taken, "x", "--", "/does/not/exist"}, codeNotFound, `"/does/not/exist"`},
		{"not on the PATH", []string{"run", "--url", taken, "x", "--", "does-not-exist-anywhere"}, codeNotFound, `"does-not-exist-anywhere"`},
		{"not executable", []string{"run", "--url", taken, "x", "--", plain}, codeNotRunnable, "permission denied"},
		{"a folder", []string{"run", "--url", taken, "x", "--", dir}, codeNotRunnable, dir},
		{"no interpreter", []string{"run", "--url", free, "x", "--", noInterpreter}, codeNotFound, noInterpreter},
		{"free afterwards", []string{"run", "--url", free, "--wait", "0", "x", "--", "true"}, 0, ""},
		{"nobody listens", []string{"run", "--url", fmt.Sprintf("redis://127.0.0.1:%d/0", freePort(t)), "x", "--", "true"}, codeUnavailable, "127.0.0.1:"},
		{"excludes nobody", []string{"run", "--url", "mem://x", "x", "--", "true"}, codeUnavailable, "scope=machine"},

		{"no arguments", []string{"run"}, codeUsage, "NAME -- COMMAND"},
		{"no dash", []string{"run", "--url", free, "x", "true"}, codeUsage, `no "--"`},
		{"two names", []string{"run", "--url", free, "x", "y", "--", "true"}, codeUsage, `2 arguments before "--"`},
		{"no name", []string{"run", "--url", free, "--", "true"}, codeUsage, `0 arguments before "--"`},
		{"no command", []string{"run", "--url", free, "x", "--"}, codeUsage, `no command after "--"`},
		{"empty name", []string{"run", "--url", free, "", "--", "true"}, codeUsage, `invalid name "": want 1 to`},
		{"long name", []string{"run", "--url", free, strings.Repeat("x", 1025), "--", "true"}, codeUsage, "of 1025 bytes"},
		{"zero ttl", []string{"run", "--url", free, "--ttl", "0", "x", "--", "true"}, codeUsage, `"0" for "--ttl" flag: want a positive duration`},
		{"negative ttl", []string{"run", "--url", free, "--ttl", "-1s", "x", "--", "true"}, codeUsage, `"-1s" for "--ttl"`},
		{"short ttl", []string{"run", "--url", free, "--ttl", "1ms", "x", "--", "true"}, codeUsage, "invalid ttl 1ms: want at least"},
		{"bad ttl in the URL", []string{"run", "--url", free + "?ttl=soon", "x", "--", "true"}, codeUsage, `invalid URL parameter ttl "soon"`},
		{"unknown parameter", []string{"run", "--url", free + "?tll=3s", "x", "--", "true"}, codeUsage, `"tll": unknown; accepted:`},
		{"bad wait", []string{"run", "--url", free, "--wait", "soon", "x", "--", "true"}, codeUsage, "want forever, 0 for one attempt"},
		{"bad min-hold", []string{"run", "--url", free, "--min-hold", "-1s", "x", "--", "true"}, codeUsage, "want 0 or a positive"},
		{"long grace", []string{"run", "--url", free, "--ttl", "4s", "--grace", "3s", "x", "--", "true"}, codeUsage, "invalid --grace 3s: want 0 to 2s"},
		{"unknown scheme", []string{"run", "--url", "gopher://x", "x", "--", "true"}, codeUsage, "redis+cluster, redis+sentinel"},
		{"no scheme", []string{"run", "--url", "localhost", "x", "--", "true"}, codeUsage, "no scheme"},
		{"unknown flag", []string{"run", "--nope", "x", "--", "true"}, codeUsage, "--nope"},
		{"unknown command", []string{"walk"}, codeUsage, `"walk"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := lockctl(t, nil, c.args...)
			if code != c.code || out != "" || c.says == "" && stderr != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want code %d and %q", code, out, stderr, c.code, c.says)
			}
			if n := strings.Count(stderr, "\n"); n > 1 {
				t.Errorf("%d lines on stderr: %q", n, stderr)
			}
		})
	}
}

func TestRunErrorsAsJSON(t *testing.T) {
	t.Parallel()
	_, _, stderr := lockctl(t, nil, "run", "--json", "--url", fileURL(t), "x", "--", "does-not-exist-anywhere")
	var e struct {
		Event, Message, Reason string
		Code                   int
	}
	if err := json.Unmarshal([]byte(stderr), &e); err != nil || e.Event != "error" || e.Code != codeNotFound || e.Reason != "not_found" {
		t.Fatalf("%v: %s", err, stderr)
	}

	url := fileURL(t)
	holder := begin(t, does("stubborn"), "run", "--url", url, "x", "--", self)
	holder.stdout.contains("ready")
	var taken struct {
		Reason string
		Holder lock.Holder
	}
	_, _, stderr = lockctl(t, nil, "run", "--json", "--url", url, "--wait", "0", "x", "--", "true")
	if err := json.Unmarshal([]byte(stderr), &taken); err != nil || taken.Reason != "not_acquired" || taken.Holder.Token == 0 {
		t.Fatalf("%v: %s", err, stderr)
	}
}

func TestRunPassesSignalsOnce(t *testing.T) {
	t.Parallel()
	r := begin(t, does("signals"), "run", "--url", fileURL(t), "x", "--", self)
	r.stdout.contains("ready\n")
	want := "ready\n"
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGHUP, syscall.SIGWINCH, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGTERM} {
		r.send(s)
		want += s.String() + "\n"
		r.stdout.contains(want) // a repeated one would stand between this and the next
	}
	if code := r.wait(); code != 3 || r.stdout.all() != want {
		t.Fatalf("exit code %d, stdout %q", code, r.stdout.text())
	}
}

func TestRunEndedByASignalWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			holder := begin(t, does("stubborn"), "run", "--url", p.url, "x", "--", self)
			holder.stdout.contains("ready")
			r := begin(t, nil, "run", "--url", p.url, "x", "--", "echo", "ran")
			r.stderr.contains("waiting for")
			r.send(syscall.SIGTERM)
			if code := r.wait(); code != 128+15 || r.stdout.all() != "" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", code, r.stdout.text(), r.stderr.text())
			}
			info, err := p.client(t).Inspect(t.Context(), "x")
			if err != nil || len(info.Waiters) != 0 {
				t.Fatalf("%v; left in the queue: %v", err, info.Waiters)
			}
		})
	}
}

func TestRunSaysWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			holder := begin(t, does("signals"), "run", "--url", p.url, "nightly", "--", self)
			holder.stdout.contains("ready")
			h, _ := awaitHolder(t, p.client(t), "nightly", heldByAny)

			quiet := begin(t, nil, "run", "--url", p.url, "--quiet", "--wait", "1500ms", "nightly", "--", "true")
			waiter := begin(t, nil, "run", "--url", p.url, "nightly", "--", "echo", "ran")
			waiter.stderr.contains(fmt.Sprintf(`waiting for "nightly": held by pid %d on `, holder.cmd.Process.Pid))
			waiter.stderr.contains(fmt.Sprintf(", token %d", h.Token))
			if code := quiet.wait(); code != codeNotAcquired || strings.Contains(quiet.stderr.all(), "waiting for") {
				t.Errorf("exit code %d, stderr %q", code, quiet.stderr.text())
			}
			holder.send(syscall.SIGTERM)
			if code := waiter.wait(); code != 0 || waiter.stdout.all() != "ran\n" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", code, waiter.stdout.text(), waiter.stderr.all())
			}
			waiter.stderr.contains(`acquired "nightly" after `)
		})
	}
}

func TestRunMinHold(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			const hold = 1500 * time.Millisecond
			begun := time.Now()
			r := begin(t, nil, "run", "--url", p.url, "--min-hold", hold.String(), "x", "--", "true")
			if p.server != nil { // the service keeps it; nobody needs to wait
				if code := r.wait(); code != 0 {
					t.Fatalf("exit code %d, stderr %q", code, r.stderr.all())
				}
			} else {
				awaitHolder(t, p.client(t), "x", heldByAny)
			}
			// how long it stays taken tells nothing unless it was at first
			if code, _, stderr := lockctl(t, nil, "run", "--url", p.url, "--wait", "0", "x", "--", "true"); code != codeNotAcquired && time.Since(begun) < hold {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			if code, _, stderr := lockctl(t, nil, "run", "--url", p.url, "--wait", "10s", "x", "--", "true"); code != 0 {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			if took := time.Since(begun); took < hold {
				t.Errorf("taken again after %v", took)
			}
		})
	}
}
