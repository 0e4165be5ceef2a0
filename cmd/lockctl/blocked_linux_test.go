package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// blockedFiles are files for stderr and stdout that take no write.
var blockedFiles = map[string]func(*testing.T) *os.File{
	"full pipe": fullPipe,
	"pipe without a reader": func(t *testing.T) *os.File {
		t.Helper()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		t.Cleanup(func() { w.Close() })
		return w
	},
	"stopped terminal": func(t *testing.T) *os.File {
		t.Helper()
		master, slave := openTerminal(t)
		t.Cleanup(func() { slave.Close(); master.Close() })
		if err := unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, unix.TCOOFF); err != nil { // as Ctrl-S does
			t.Fatal(err)
		}
		return slave
	},
}

// fullPipe returns a pipe that nothing reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	return w
}

// beginWith starts lockctl with other files for stdout and stderr. Nil: a pipe, whose end is
// returned.
func beginWith(t *testing.T, stdout, stderr *os.File, env []string, args ...string) (out *cmdtest.Tail, cmd *exec.Cmd, wait func() int) {
	t.Helper()
	cmd = exec.Command(cmdtest.Binary(), args...)
	cmd.Env = append(os.Environ(), env...)
	if stderr != nil {
		cmd.Stderr = stderr
	}
	cmd.Stdout = stdout
	var w *os.File
	if stdout == nil {
		var r *os.File
		var err error
		if r, w, err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
		out, cmd.Stdout = cmdtest.NewTail(t, r), w
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if w != nil {
		w.Close()
	}
	ended := make(chan int, 1)
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		ended <- cmd.ProcessState.ExitCode()
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	return out, cmd, func() int {
		t.Helper()
		select {
		case code := <-ended:
			return code
		case <-time.After(cmdtest.Timeout):
			t.Fatalf("%v did not end", cmd.Args)
			return 0
		}
	}
}

func breakLock(t *testing.T, url, name string) {
	t.Helper()
	if code, out, stderr := cmdtest.Exec(t, nil, "break", "--url", url, "--yes", name); code != 0 || !strings.Contains(out, "taken from ") {
		t.Fatalf("break: exit code %d, stdout %q, stderr %q", code, out, stderr)
	}
}

// A stderr that takes no write delays neither the end of a command whose lock was lost nor
// the exit code. The TTL is longer than the test waits.
func TestLossWithABlockedStderr(t *testing.T) {
	t.Parallel()
	for name, blocked := range blockedFiles {
		for _, command := range []string{"run", "elect"} {
			t.Run(command+"/"+name, func(t *testing.T) {
				t.Parallel()
				url := cmdtest.FileURL(t)
				env, dead := watchDeath(t, 1)
				stdout, lockctl, wait := beginWith(t, nil, blocked(t), append(mode("signals"), env), command, "--verbose", "--url", url, "--ttl", "2m", "x", "--", self)
				stdout.Contains("ready")
				breakLock(t, url, "x")
				dead()
				want := lockcmd.ExitLost
				if command == "elect" {
					stdout.Times("ready", 2) // the next term
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

// A blocked notice of a wait delays neither the command nor a signal.
func TestWaitWithABlockedStderr(t *testing.T) {
	t.Parallel()
	for name, blocked := range blockedFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := cmdtest.FileURL(t)
			holder := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "x", "--", self)
			holder.Stdout.Contains("ready")
			stdout, _, _ := beginWith(t, nil, blocked(t), mode("signals"), "run", "--url", url, "x", "--", self)
			_, second, wait := beginWith(t, nil, blocked(t), mode("signals"), "run", "--url", url, "x", "--", self)
			c := (&cmdtest.Service{URL: url}).Client(t)
			for waiters, began := 0, time.Now(); waiters < 2 || time.Since(began) < 2*time.Second; { // a notice comes after 1 s
				info, err := c.Inspect(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				if waiters < 2 {
					waiters, began = len(info.Waiters), time.Now()
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err := second.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := wait(); code != lockcmd.ExitSignal+int(syscall.SIGTERM) {
				t.Errorf("a signal during the wait: exit code %d", code)
			}
			holder.Send(syscall.SIGTERM)
			stdout.Contains("ready")
		})
	}
}

// A signal ends a program whose results are not read.
func TestSignalWithABlockedStdout(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := cmdtest.NewTail(t, r)
	_, list, wait := beginWith(t, fullPipe(t), w, nil, "list", "--verbose", "--url", url)
	w.Close()
	stderr.Contains("opening")
	if err := list.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := wait(); code != lockcmd.ExitSignal+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
}

// An orphan of the command leaves no zombie while the command runs.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	r := cmdtest.Begin(t, mode("orphan"), "run", "--url", cmdtest.FileURL(t), "x", "--", self)
	r.Stdout.Contains("ready")
	var pid int
	if _, err := fmt.Sscanf(r.Stdout.Text(), "orphan %d", &pid); err != nil {
		t.Fatalf("%v: %q", err, r.Stdout.Text())
	}
	for deadline := time.Now().Add(cmdtest.Timeout); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the orphan was not waited for: %s", text)
		}
	}
}

// The command of each term of elect ignores the same signals.
func TestElectPassesOnNoIgnoredSignal(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	r := cmdtest.Begin(t, mode("ignored"), "elect", "--url", url, "x", "--", self)
	for term := 1; term <= 3; term++ {
		r.Stdout.Times("ignores ", term)
		breakLock(t, url, "x")
	}
	lines := strings.Fields(r.Stdout.Text())
	if first := strings.Join(lines[:3], " "); !strings.HasPrefix(strings.Join(lines, " "), strings.TrimSpace(strings.Repeat(first+" ", 3))) {
		t.Errorf("the signals that the commands ignore: %q", r.Stdout.Text())
	}
}
