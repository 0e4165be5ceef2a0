package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onTerminal starts a program on a terminal of its own, and returns what is typed
// into that and what it shows.
func onTerminal(t *testing.T, extra []string, argv ...string) (keys io.Writer, screen *tail) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), extra...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	t.Cleanup(func() {
		master.Close() // hangs up on whoever is left
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	screen = &tail{t: t, news: make(chan struct{})}
	go screen.read(io.NopCloser(master))
	return master, screen
}

func typed(t *testing.T, keys io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(keys, s); err != nil {
		t.Fatal(err)
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

func TestTerminalInterruptArrivesOnce(t *testing.T) {
	t.Parallel()
	keys, screen := onTerminal(t, does("signals"), binary, "run", "--url", fileURL(t), "x", "--", self)
	screen.contains("ready\r\n")
	typed(t, keys, ctrlC)
	screen.contains("^Cinterrupt\r\n")
	typed(t, keys, ctrlC)
	screen.contains("^Cinterrupt\r\n^Cinterrupt\r\n")
	typed(t, keys, ctrlZ) // nobody could continue it
	typed(t, keys, ctrlC)
	screen.until("a third interrupt", func(text string, _ bool) bool { return strings.Count(text, "interrupt\r\n") == 3 })
}

func TestTerminalCanBeRead(t *testing.T) {
	t.Parallel()
	keys, screen := onTerminal(t, does("asks"), "/bin/sh", "-c", fmt.Sprintf("'%s' run --url '%s' x -- '%s'; echo code $?", binary, fileURL(t), self))
	screen.contains("ready\r\n")
	typed(t, keys, "yes\n")
	screen.contains(`read "yes\n" <nil>`)
	screen.contains("code 0")
}

func TestTerminalInterruptAfterReading(t *testing.T) {
	t.Parallel()
	// the command has been given the terminal: the signal does not come through lockctl
	keys, screen := onTerminal(t, does("asks"), "/bin/sh", "-c", fmt.Sprintf("trap : INT; '%s' run --url '%s' x -- '%s'; echo code $?", binary, fileURL(t), self))
	screen.contains("ready\r\n")
	typed(t, keys, ctrlC)
	screen.contains("code 130")
}

func TestTerminalStopAndContinue(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	// -m: a shell that controls jobs, as on a terminal with a person
	script := fmt.Sprintf("'%s' run --url '%s' x -- '%s'; echo stopped $?; fg >/dev/null; echo code $?", binary, url, self)
	keys, screen := onTerminal(t, does("signals"), "/bin/sh", "-mc", script)
	screen.contains("ready\r\n")
	typed(t, keys, ctrlZ)
	screen.contains("stopped " + strconv.Itoa(128+int(syscall.SIGSTOP)))
	screen.contains("continued\r\n") // by fg
	typed(t, keys, ctrlC)
	screen.contains("continued\r\n^Cinterrupt\r\n")
	if code, _, _ := lockctl(t, nil, "run", "--url", url, "--wait", "0", "x", "--", "true"); code != codeNotAcquired {
		t.Errorf("the lock did not outlast the stop: exit code %d", code)
	}
}

// A command that was stopped until its lock was lost does not run again.
func TestTerminalContinuedTooLate(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	const ttl = 4 * time.Second // most of which there is for getting stopped
	script := fmt.Sprintf("'%s' run --url '%s?renew=false' --ttl %v --grace 0 x -- '%s'; echo stopped $?; read go; fg >/dev/null; echo code $?", binary, url, ttl, self)
	keys, screen := onTerminal(t, does("signals"), "/bin/sh", "-mc", script)
	screen.contains("ready\r\n")
	typed(t, keys, ctrlZ)
	screen.contains("stopped ")
	time.Sleep(ttl) // the TTL itself is what is waited for
	typed(t, keys, "go\n")
	screen.contains("code " + strconv.Itoa(codeLost))
	if strings.Contains(screen.text(), "continued") {
		t.Errorf("the command ran again: %q", screen.text())
	}
}

func TestTerminalBreakAsks(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	holder := begin(t, does("signals"), "run", "--url", url, "x", "--", self)
	holder.stdout.contains("ready")
	who := fmt.Sprintf("held by pid %d on ", holder.cmd.Process.Pid)

	keys, screen := onTerminal(t, nil, binary, "break", "--url", url, "x")
	screen.contains(who)
	screen.contains("[y/N] ")
	typed(t, keys, "\n")
	screen.contains("was not broken")

	keys, screen = onTerminal(t, nil, binary, "break", "--url", url, "x")
	screen.contains("[y/N] ")
	typed(t, keys, "y\n")
	screen.contains("taken from pid " + strconv.Itoa(holder.cmd.Process.Pid))
	if code := holder.wait(); code != codeLost {
		t.Fatalf("exit code %d, stderr %q", code, holder.stderr.text())
	}

	code, _, stderr := lockctl(t, nil, "break", "--url", url, "x") // free: nothing to ask
	if code != 0 {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
}

func TestBreakWithoutATerminalNeedsYes(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	holder := begin(t, does("signals"), "run", "--url", url, "x", "--", self)
	holder.stdout.contains("ready")
	code, out, stderr := lockctl(t, nil, "break", "--url", url, "x")
	if code != codeUsage || out != "" || !strings.Contains(stderr, "want --yes") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, stderr)
	}
	holder.send(syscall.SIGTERM)
	if code := holder.wait(); code != 3 {
		t.Fatalf("the holder was disturbed: exit code %d, stderr %q", code, holder.stderr.text())
	}
}

// On a terminal the table is drawn in place, and left as a usable screen.
func TestTerminalTop(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	keys, screen := onTerminal(t, nil, "/bin/sh", "-c", fmt.Sprintf("trap : INT; '%s' top --interval 100ms --url '%s'; echo code $?", binary, url))
	screen.contains("\x1b[2J\x1b[?7l\x1b[Hfile: 0 held, 0 waiting, at ")
	begin(t, does("signals"), "run", "--url", url, "--as", "me", "x", "--", self).stdout.contains("ready")
	screen.contains("\x1b[Hfile: 1 held, 0 waiting, at ")
	screen.contains("  me\x1b[K\r\n\x1b[J\x1b[?7h")
	typed(t, keys, ctrlC)
	screen.contains("code 0\r\n")
	if text := screen.text(); strings.Count(text, "\x1b[?7l") != strings.Count(text, "\x1b[?7h") || strings.Count(text, "\x1b[2J") != 1 {
		t.Errorf("%q", text)
	}
}
