package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// closings are redirections of a shell that close stdout or stderr.
var closings = map[string]string{"stderr": "2>&-", "stdout": ">&-", "both": ">&- 2>&-", "all three": "<&- >&- 2>&-"}

// beginClosed starts lockctl with closed standard files. The command is this binary, whose
// output goes to a file: terms waits until the command has printed "ready" so many times.
func beginClosed(t *testing.T, redirections, how string, env []string, args ...string) (lockctl *exec.Cmd, terms func(int), wait func() int) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	args = append([]string{"-c", `exec "$0" "$@" ` + redirections, cmdtest.Binary()}, args...)
	args = append(args, "--", "sh", "-c", `exec "$0" >>"$OUT" 2>&1`, self)
	lockctl = exec.Command("sh", args...)
	lockctl.Env = append(append(os.Environ(), env...), append(mode(how), "OUT="+out)...)
	if err := lockctl.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = lockctl.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = lockctl.Process.Kill()
		<-done
	})
	terms = func(n int) {
		t.Helper()
		for deadline := time.Now().Add(cmdtest.Timeout); ; time.Sleep(5 * time.Millisecond) {
			text, err := os.ReadFile(out)
			if strings.Count(string(text), "ready\n") >= n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the command did not begin %d times: %q, %v", n, text, err)
			}
		}
	}
	wait = func() int {
		t.Helper()
		select {
		case <-done:
			return lockctl.ProcessState.ExitCode()
		case <-time.After(cmdtest.Timeout):
			t.Fatalf("%v did not end", lockctl.Args)
			return 0
		}
	}
	return lockctl, terms, wait
}

// Closed standard files delay neither the end of a command whose lock is broken nor change
// the exit code. The TTL is longer than the test waits.
func TestBreakWithClosedFiles(t *testing.T) {
	t.Parallel()
	for name, redirections := range closings {
		for _, command := range []string{"run", "elect"} {
			t.Run(command+"/"+name, func(t *testing.T) {
				t.Parallel()
				url := cmdtest.FileURL(t)
				env, dead := watchDeath(t, 1)
				lockctl, terms, wait := beginClosed(t, redirections, "signals", []string{env}, command, "--verbose", "--url", url, "--ttl", "2m", "x")
				terms(1)
				breakLock(t, url, "x")
				dead()
				want := lockcmd.ExitLost
				if command == "elect" {
					terms(2)
					if err := lockctl.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					want = 3
				}
				if code := wait(); code != want {
					t.Errorf("want exit code %d, got %d", want, code)
				}
			})
		}
	}
}

// With closed standard files too, a command whose lock cannot be renewed is dead before
// the service can grant the lock to another client, though it ignores TERM and its child
// leaves the process group.
func TestOutageWithClosedFiles(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "elect"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			onTime(t, func() (wrong string, late time.Duration) {
				s := cmdtest.RequireRedis(t)
				const ttl = 3 * time.Second
				env, dead := watchDeath(t, processes("leaves"))
				lockctl, terms, wait := beginClosed(t, closings["all three"], "leaves", []string{env}, command, "--url", s.URL, "--ttl", ttl.String(), "x")
				terms(1)
				c := s.Client(t)
				// just renewed: no renewal comes between this answer and the failure
				awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left < ttl*8/10 })
				worst := lateness(t)
				h, asked := awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
				s.Signal(t, syscall.SIGSTOP)
				left := asked.Add(h.Left).Sub(dead())
				late = worst()
				if left <= 0 {
					wrong = fmt.Sprintf("the command died %v after its TTL", -left)
				}
				want := lockcmd.ExitLost
				if command == "elect" { // it campaigns again, until a signal ends it
					if err := lockctl.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					want = lockcmd.ExitSignal + int(syscall.SIGTERM)
				}
				if code := wait(); code != want {
					t.Errorf("want exit code %d, got %d", want, code)
				}
				return wrong, late
			})
		})
	}
}

// A result that cannot be written changes nothing for a command without a lock.
func TestExitCodesWithClosedFiles(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	holder := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "taken", "--", self)
	holder.Stdout.Contains("ready")
	free := 0
	for name, redirections := range closings {
		for args, want := range map[string]int{
			"run --wait 0 free -- sh -c 'exit 7'":      7,
			"run --wait 0 taken -- true":               lockcmd.ExitNotAcquired,
			"run --ttl 0 free -- true":                 lockcmd.ExitUsage,
			"run free -- /does/not/exist":              lockcmd.ExitNotFound,
			"run free -- sh -c 'kill -9 $$'":           lockcmd.ExitSignal + 9,
			"run --wait 300ms --quiet taken -- true":   lockcmd.ExitNotAcquired,
			"run --wait 1500ms -o json taken -- false": lockcmd.ExitNotAcquired,
		} {
			free++ // the cases run at the same time
			command := strings.Replace(args, " free ", fmt.Sprintf(" free-%d ", free), 1)
			t.Run(name+"/"+args, func(t *testing.T) {
				t.Parallel()
				sh := exec.Command("sh", "-c", cmdtest.Binary()+" "+command+" "+redirections)
				sh.Env = append(os.Environ(), "LOCK_URL="+url)
				_ = sh.Run()
				if code := sh.ProcessState.ExitCode(); code != want {
					t.Errorf("want exit code %d, got %d", want, code)
				}
			})
		}
	}
}
