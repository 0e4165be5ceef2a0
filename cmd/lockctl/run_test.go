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
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestRunTokensRise(t *testing.T) {
	t.Parallel()
	// the first command of the README, without a URL
	env := []string{"XDG_STATE_HOME=" + t.TempDir()}
	var last uint64
	for range 3 {
		code, out, stderr := cmdtest.Exec(t, env, "run", "nightly", "--", "sh", "-c", "echo token $LOCK_TOKEN")
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
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			code, out, stderr := cmdtest.Exec(t,
				[]string{"LOCK_URL=" + p.URL, "LOCK_TOKEN=stale", "LOCK_NAME=stale", "LOCK_OWNER=stale", "LOCK_SLOTS=stale"},
				"run", "a name", "--", "sh", "-c", `echo "$LOCK_NAME|$LOCK_TOKEN|$LOCK_OWNER|$LOCK_URL"; env | grep -Ec '^LOCK_(NAME|TOKEN|OWNER|SLOTS)='`)
			if code != 0 {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			f := strings.Split(lines[0], "|")
			if len(f) != 4 || f[0] != "a name" || len(f[2]) != 32 || f[3] != p.URL || lines[1] != "3" {
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
	r := cmdtest.Begin(t, nil, "run", "--url", cmdtest.FileURL(t), "x", "--", "sh", "-c", "cat; echo oops >&2")
	fmt.Fprint(r.Stdin, "one\ntwo\n")
	r.Stdin.Close()
	if code := r.Wait(); code != 0 || r.Stdout.All() != "one\ntwo\n" || r.Stderr.All() != "oops\n" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, r.Stdout.Text(), r.Stderr.Text())
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
	free := cmdtest.FileURL(t)
	taken := cmdtest.FileURL(t)
	holder := cmdtest.Begin(t, mode("stubborn"), "run", "--url", taken, "x", "--", self)
	holder.Stdout.Contains("ready")

	for _, c := range []struct {
		name string
		args []string
		code int
		says string // on stderr; "" for nothing
	}{
		{"success", []string{"run", "--url", free, "x", "--", "true"}, 0, ""},
		{"the command's code", []string{"run", "--url", free, "x", "--", "sh", "-c", "exit 7"}, 7, ""},
		{"the command's signal", []string{"run", "--url", free, "x", "--", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{"taken, one attempt", []string{"run", "--url", taken, "--wait", "0", "x", "--", "true"}, lockcmd.ExitNotAcquired, `"x" is held by pid `},
		{"taken, bounded wait", []string{"run", "-q", "--url", taken, "--wait", "3s", "x", "--", "true"}, lockcmd.ExitNotAcquired, `"x" was not acquired within 3s: when the wait began it was held by pid `},
		{"not found", []string{"run", "--url", taken, "x", "--", "/does/not/exist"}, lockcmd.ExitNotFound, `"/does/not/exist"`},
		{"not on the PATH", []string{"run", "--url", taken, "x", "--", "does-not-exist-anywhere"}, lockcmd.ExitNotFound, `"does-not-exist-anywhere"`},
		{"not executable", []string{"run", "--url", taken, "x", "--", plain}, lockcmd.ExitNotExecutable, "permission denied"},
		{"a folder", []string{"run", "--url", taken, "x", "--", dir}, lockcmd.ExitNotExecutable, dir},
		{"no interpreter", []string{"run", "--url", free, "x", "--", noInterpreter}, lockcmd.ExitNotFound, noInterpreter},
		{"free afterwards", []string{"run", "--url", free, "--wait", "0", "x", "--", "true"}, 0, ""},
		{"no server", []string{"run", "--url", fmt.Sprintf("redis://127.0.0.1:%d/0", clienttest.FreePort()), "x", "--", "true"}, lockcmd.ExitUnavailable, "127.0.0.1:"},

		{"no arguments", []string{"run"}, lockcmd.ExitUsage, "NAME -- COMMAND"},
		{"no dash", []string{"run", "--url", free, "x", "true"}, lockcmd.ExitUsage, `no "--"`},
		{"two names", []string{"run", "--url", free, "x", "y", "--", "true"}, lockcmd.ExitUsage, `2 arguments before "--"`},
		{"no name", []string{"run", "--url", free, "--", "true"}, lockcmd.ExitUsage, `0 arguments before "--"`},
		{"no command", []string{"run", "--url", free, "x", "--"}, lockcmd.ExitUsage, `no command after "--"`},
		{"empty name", []string{"run", "--url", free, "", "--", "true"}, lockcmd.ExitUsage, `invalid name "": want 1 to`},
		{"long name", []string{"run", "--url", free, strings.Repeat("x", 1025), "--", "true"}, lockcmd.ExitUsage, "of 1025 bytes"},
		{"zero ttl", []string{"run", "--url", free, "--ttl", "0", "x", "--", "true"}, lockcmd.ExitUsage, `"0" for "--ttl" flag: want a positive duration`},
		{"negative ttl", []string{"run", "--url", free, "--ttl", "-1s", "x", "--", "true"}, lockcmd.ExitUsage, `"-1s" for "--ttl"`},
		{"short ttl", []string{"run", "--url", free, "--ttl", "1ms", "x", "--", "true"}, lockcmd.ExitUsage, "invalid ttl 1ms: want from 50ms"},
		{"bad ttl in the URL", []string{"run", "--url", free + "?ttl=soon", "x", "--", "true"}, lockcmd.ExitUsage, `invalid URL parameter ttl "soon"`},
		{"unknown parameter", []string{"run", "--url", free + "?tll=3s", "x", "--", "true"}, lockcmd.ExitUsage, `"tll": unknown; accepted:`},
		{"bad wait", []string{"run", "--url", free, "--wait", "soon", "x", "--", "true"}, lockcmd.ExitUsage, "want forever, 0 for one attempt"},
		{"bad min-hold", []string{"run", "--url", free, "--min-hold", "-1s", "x", "--", "true"}, lockcmd.ExitUsage, "want 0 or a positive"},
		{"long grace", []string{"run", "--url", free, "--ttl", "4s", "--grace", "3s", "x", "--", "true"}, lockcmd.ExitUsage, "invalid --grace 3s: want 0 to 2s"},
		{"unknown scheme", []string{"run", "--url", "gopher://x", "x", "--", "true"}, lockcmd.ExitUsage, "redis+cluster, redis+sentinel"},
		{"no scheme", []string{"run", "--url", "localhost", "x", "--", "true"}, lockcmd.ExitUsage, "no scheme"},
		{"unknown flag", []string{"run", "--nope", "x", "--", "true"}, lockcmd.ExitUsage, "--nope"},
		{"unknown command", []string{"walk"}, lockcmd.ExitUsage, `"walk"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := cmdtest.Exec(t, nil, c.args...)
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
	_, _, stderr := cmdtest.Exec(t, nil, "run", "-o", "json", "--url", cmdtest.FileURL(t), "x", "--", "does-not-exist-anywhere")
	var e struct {
		Event, Message, Reason string
		Code                   int
	}
	if err := json.Unmarshal([]byte(stderr), &e); err != nil || e.Event != "error" || e.Code != lockcmd.ExitNotFound || e.Reason != "not_found" {
		t.Fatalf("%v: %s", err, stderr)
	}

	url := cmdtest.FileURL(t)
	holder := cmdtest.Begin(t, mode("stubborn"), "run", "--url", url, "x", "--", self)
	holder.Stdout.Contains("ready")
	var taken struct {
		Reason string
		Holder lock.Holder
	}
	_, _, stderr = cmdtest.Exec(t, nil, "run", "-o", "json", "--url", url, "--wait", "0", "x", "--", "true")
	if err := json.Unmarshal([]byte(stderr), &taken); err != nil || taken.Reason != "not_acquired" || taken.Holder.Token == 0 {
		t.Fatalf("%v: %s", err, stderr)
	}
}

func TestRunPassesSignalsOnce(t *testing.T) {
	t.Parallel()
	r := cmdtest.Begin(t, mode("signals"), "run", "--url", cmdtest.FileURL(t), "x", "--", self)
	r.Stdout.Contains("ready\n")
	want := "ready\n"
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGHUP, syscall.SIGWINCH, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGTERM} {
		r.Send(s)
		want += s.String() + "\n"
		r.Stdout.Contains(want) // a repeated signal would appear before the next
	}
	if code := r.Wait(); code != 3 || r.Stdout.All() != want {
		t.Fatalf("exit code %d, stdout %q", code, r.Stdout.Text())
	}
}

func TestRunEndedByASignalWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			holder := cmdtest.Begin(t, mode("stubborn"), "run", "--url", p.URL, "x", "--", self)
			holder.Stdout.Contains("ready")
			r := cmdtest.Begin(t, nil, "run", "--url", p.URL, "x", "--", "echo", "ran")
			r.Stderr.Contains("waiting for")
			r.Send(syscall.SIGTERM)
			if code := r.Wait(); code != 128+15 || r.Stdout.All() != "" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", code, r.Stdout.Text(), r.Stderr.Text())
			}
			info, err := p.Client(t).Inspect(t.Context(), "x")
			if err != nil || len(info.Waiters) != 0 {
				t.Fatalf("%v; left in the queue: %v", err, info.Waiters)
			}
		})
	}
}

func TestRunSaysWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			holder := cmdtest.Begin(t, mode("signals"), "run", "--url", p.URL, "nightly", "--", self)
			holder.Stdout.Contains("ready")
			h, _ := awaitHolder(t, p.Client(t), "nightly", heldByAny)

			quiet := cmdtest.Begin(t, nil, "run", "--url", p.URL, "--quiet", "--wait", "1500ms", "nightly", "--", "true")
			waiter := cmdtest.Begin(t, nil, "run", "--url", p.URL, "nightly", "--", "echo", "ran")
			waiter.Stderr.Contains(fmt.Sprintf(`waiting for "nightly": held by pid %d on `, holder.Cmd.Process.Pid))
			waiter.Stderr.Contains(fmt.Sprintf(", token %d", h.Token))
			if code := quiet.Wait(); code != lockcmd.ExitNotAcquired || strings.Contains(quiet.Stderr.All(), "waiting for") {
				t.Errorf("exit code %d, stderr %q", code, quiet.Stderr.Text())
			}
			holder.Send(syscall.SIGTERM)
			if code := waiter.Wait(); code != 0 || waiter.Stdout.All() != "ran\n" {
				t.Fatalf("exit code %d, stdout %q, stderr %q", code, waiter.Stdout.Text(), waiter.Stderr.All())
			}
			waiter.Stderr.Contains(`acquired "nightly" after `)
		})
	}
}

func TestRunMinHold(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			const hold = 1500 * time.Millisecond
			begun := time.Now()
			r := cmdtest.Begin(t, nil, "run", "--url", p.URL, "--min-hold", hold.String(), "x", "--", "true")
			if p.IsServer() { // the service keeps the lock; lockctl does not wait
				if code := r.Wait(); code != 0 {
					t.Fatalf("exit code %d, stderr %q", code, r.Stderr.All())
				}
			} else {
				awaitHolder(t, p.Client(t), "x", heldByAny)
			}
			// the next attempt measures nothing unless the lock is held now
			if code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", p.URL, "--wait", "0", "x", "--", "true"); code != lockcmd.ExitNotAcquired && time.Since(begun) < hold {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			if code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", p.URL, "--wait", "10s", "x", "--", "true"); code != 0 {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			if took := time.Since(begun); took < hold {
				t.Errorf("taken again after %v", took)
			}
		})
	}
}
