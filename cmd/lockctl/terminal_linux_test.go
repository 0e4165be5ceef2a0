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

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// onTerminal starts a program on a terminal of its own, and returns the input and the
// output of the terminal.
func onTerminal(t *testing.T, extra []string, argv ...string) (keys io.Writer, screen *cmdtest.Tail) {
	t.Helper()
	master, slave := openTerminal(t)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), extra...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	t.Cleanup(func() {
		master.Close() // the remaining processes get SIGHUP
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return master, cmdtest.NewTail(t, io.NopCloser(master))
}

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
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
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func typeKeys(t *testing.T, keys io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(keys, s); err != nil {
		t.Fatal(err)
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

func TestTerminalInterruptArrivesOnce(t *testing.T) {
	t.Parallel()
	keys, screen := onTerminal(t, mode("signals"), cmdtest.Binary(), "run", "--url", cmdtest.FileURL(t), "x", "--", self)
	screen.Contains("ready\r\n")
	typeKeys(t, keys, ctrlC)
	screen.Contains("^Cinterrupt\r\n")
	typeKeys(t, keys, ctrlC)
	screen.Contains("^Cinterrupt\r\n^Cinterrupt\r\n")
	typeKeys(t, keys, ctrlZ) // ignored: no shell could continue the command
	typeKeys(t, keys, ctrlC)
	screen.Times("interrupt\r\n", 3)
}

func TestTerminalCanBeRead(t *testing.T) {
	t.Parallel()
	keys, screen := onTerminal(t, mode("asks"), "/bin/sh", "-c", fmt.Sprintf("'%s' run --url '%s' x -- '%s'; echo code $?", cmdtest.Binary(), cmdtest.FileURL(t), self))
	screen.Contains("ready\r\n")
	typeKeys(t, keys, "yes\n")
	screen.Contains(`read "yes\n" <nil>`)
	screen.Contains("code 0")
}

func TestTerminalInterruptAfterReading(t *testing.T) {
	t.Parallel()
	// the command has the terminal: the signal does not come through lockctl
	keys, screen := onTerminal(t, mode("asks"), "/bin/sh", "-c", fmt.Sprintf("trap : INT; '%s' run --url '%s' x -- '%s'; echo code $?", cmdtest.Binary(), cmdtest.FileURL(t), self))
	screen.Contains("ready\r\n")
	typeKeys(t, keys, ctrlC)
	screen.Contains("code 130")
}

func TestTerminalStopAndContinue(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	// -m: a shell with job control, as an interactive one
	script := fmt.Sprintf("'%s' run --url '%s' x -- '%s'; echo stopped $?; fg >/dev/null; echo code $?", cmdtest.Binary(), url, self)
	keys, screen := onTerminal(t, mode("signals"), "/bin/sh", "-mc", script)
	screen.Contains("ready\r\n")
	typeKeys(t, keys, ctrlZ)
	screen.Contains("stopped " + strconv.Itoa(128+int(syscall.SIGSTOP)))
	screen.Contains("continued\r\n") // by fg
	typeKeys(t, keys, ctrlC)
	screen.Contains("continued\r\n^Cinterrupt\r\n")
	if code, _, _ := cmdtest.Exec(t, nil, "run", "--url", url, "--wait", "0", "x", "--", "true"); code != lockcmd.ExitNotAcquired {
		t.Errorf("the lock was lost during the stop: exit code %d", code)
	}
}

// A command that was stopped until its lock was lost is not continued.
func TestTerminalContinuedTooLate(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	const ttl = 4 * time.Second // long enough to stop the command before
	script := fmt.Sprintf("'%s' run --url '%s?renew=false' --ttl %v --grace 0 x -- '%s'; echo stopped $?; read go; fg >/dev/null; echo code $?", cmdtest.Binary(), url, ttl, self)
	keys, screen := onTerminal(t, mode("signals"), "/bin/sh", "-mc", script)
	screen.Contains("ready\r\n")
	typeKeys(t, keys, ctrlZ)
	screen.Contains("stopped ")
	time.Sleep(ttl) // until the TTL is over
	typeKeys(t, keys, "go\n")
	screen.Contains("code " + strconv.Itoa(lockcmd.ExitLost))
	if strings.Contains(screen.Text(), "continued") {
		t.Errorf("the command ran again: %q", screen.Text())
	}
}

func TestTerminalBreakAsks(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	holder := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "x", "--", self)
	holder.Stdout.Contains("ready")
	holderText := fmt.Sprintf("held by pid %d on ", holder.Cmd.Process.Pid)

	keys, screen := onTerminal(t, nil, cmdtest.Binary(), "break", "--url", url, "x")
	screen.Contains(holderText)
	screen.Contains("[y/N] ")
	typeKeys(t, keys, "\n")
	screen.Contains("was not broken")

	keys, screen = onTerminal(t, nil, cmdtest.Binary(), "break", "--url", url, "x")
	screen.Contains("[y/N] ")
	typeKeys(t, keys, "y\n")
	screen.Contains("taken from pid " + strconv.Itoa(holder.Cmd.Process.Pid))
	if code := holder.Wait(); code != lockcmd.ExitLost {
		t.Fatalf("exit code %d, stderr %q", code, holder.Stderr.Text())
	}

	code, _, stderr := cmdtest.Exec(t, nil, "break", "--url", url, "x") // free: break does not ask
	if code != 0 {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
}

// The lock passes to another holder while break waits for the answer.
func TestTerminalBreakOfTheHolderThatItShowed(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	first := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "x", "--", self)
	first.Stdout.Contains("ready")
	second := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "--as", "second job", "x", "--", self)
	second.Stderr.Contains("waiting")

	keys, screen := onTerminal(t, nil, cmdtest.Binary(), "break", "--url", url, "x")
	screen.Contains("[y/N] ")
	first.Send(syscall.SIGTERM)
	first.Wait()
	second.Stdout.Contains("ready")
	typeKeys(t, keys, "y\n")
	screen.Contains("was not broken: another holder has it: second job")
	code, _, stderr := cmdtest.Exec(t, nil, "break", "--url", url, "--yes", "--owner", "earlier", "x")
	if code != lockcmd.ExitFailed || !strings.Contains(stderr, "was not broken: another holder has it: second job") {
		t.Errorf("a break that names an earlier holder: exit code %d, stderr %q", code, stderr)
	}
	second.Send(syscall.SIGTERM)
	if code := second.Wait(); code != 3 {
		t.Fatalf("the second holder did not continue: exit code %d, stderr %q", code, second.Stderr.Text())
	}
}

// Break shows all holders of permits and breaks all of them.
func TestTerminalBreakOfSeveralHolders(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	begin := func(as string) *cmdtest.Run {
		r := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "--permits", "1/2", "--as", as, "x", "--", self)
		r.Stdout.Contains("ready")
		return r
	}
	holders := []*cmdtest.Run{begin("first"), begin("second")}
	keys, screen := onTerminal(t, nil, cmdtest.Binary(), "break", "--url", url, "x")
	screen.Contains("held by first, ")
	screen.Contains(", and by second, ")
	screen.Contains("[y/N] ")
	typeKeys(t, keys, "y\n")
	screen.Contains("taken from first")
	screen.Contains("taken from second")
	for _, r := range holders {
		if code := r.Wait(); code != lockcmd.ExitLost {
			t.Errorf("exit code %d, stderr %q, want %d", code, r.Stderr.Text(), lockcmd.ExitLost)
		}
	}
}

// While break waits for the answer one of two holders leaves and another one comes, which break has not shown.
func TestTerminalBreakOfTheHoldersThatItShowed(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	begin := func(as string) *cmdtest.Run {
		r := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "--permits", "1/2", "--as", as, "x", "--", self)
		r.Stdout.Contains("ready")
		return r
	}
	leaves, stays := begin("leaves"), begin("stays")
	keys, screen := onTerminal(t, nil, cmdtest.Binary(), "break", "--url", url, "x")
	screen.Contains("[y/N] ")
	leaves.Send(syscall.SIGTERM)
	leaves.Wait()
	comes := begin("comes")
	typeKeys(t, keys, "y\n")
	screen.Contains("taken from stays")
	if code := stays.Wait(); code != lockcmd.ExitLost {
		t.Errorf("a holder that break showed: exit code %d, stderr %q, want %d", code, stays.Stderr.Text(), lockcmd.ExitLost)
	}
	comes.Send(syscall.SIGTERM)
	if code := comes.Wait(); code != 3 {
		t.Errorf("a holder that break did not show: exit code %d, stderr %q, want 3 as it continued", code, comes.Stderr.Text())
	}
}

// The flag --timeout bounds the request that follows the answer.
func TestTerminalBreakTimeout(t *testing.T) {
	t.Parallel()
	s := cmdtest.RequireRedis(t)
	holder := cmdtest.Begin(t, mode("signals"), "run", "--url", s.URL, "x", "--", self)
	holder.Stdout.Contains("ready")
	keys, screen := onTerminal(t, nil, cmdtest.Binary(), "break", "--timeout", "900ms", "--url", s.URL, "x")
	screen.Contains("[y/N] ")
	s.Signal(t, syscall.SIGSTOP)
	typeKeys(t, keys, "y\n")
	screen.Contains("no answer within --timeout 900ms: ")
}

func TestBreakWithoutATerminalNeedsYes(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	holder := cmdtest.Begin(t, mode("signals"), "run", "--url", url, "x", "--", self)
	holder.Stdout.Contains("ready")
	code, out, stderr := cmdtest.Exec(t, nil, "break", "--url", url, "x")
	if code != lockcmd.ExitUsage || out != "" || !strings.Contains(stderr, "want --yes") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, stderr)
	}
	holder.Send(syscall.SIGTERM)
	if code := holder.Wait(); code != 3 {
		t.Fatalf("the holder did not continue: exit code %d, stderr %q", code, holder.Stderr.Text())
	}
}

// On a terminal the table is drawn in place, and the terminal remains usable.
func TestTerminalTop(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	keys, screen := onTerminal(t, nil, "/bin/sh", "-c", fmt.Sprintf("trap : INT; '%s' top --interval 100ms --url '%s'; echo code $?", cmdtest.Binary(), url))
	screen.Contains("\x1b[2J\x1b[?7l\x1b[Hfile: 0 held, 0 waiting, at ")
	cmdtest.Begin(t, mode("signals"), "run", "--url", url, "--as", "me", "x", "--", self).Stdout.Contains("ready")
	screen.Contains("\x1b[Hfile: 1 held, 0 waiting, at ")
	screen.Contains("  me\x1b[K\r\n\x1b[J\x1b[?7h")
	typeKeys(t, keys, ctrlC)
	screen.Contains("code 0\r\n")
	if text := screen.Text(); strings.Count(text, "\x1b[?7l") != strings.Count(text, "\x1b[?7h") || strings.Count(text, "\x1b[2J") != 1 {
		t.Errorf("%q", text)
	}
}

// The key q ends top at once, and the terminal has its mode of before.
func TestTerminalTopQuitKey(t *testing.T) {
	t.Parallel()
	script := fmt.Sprintf("'%s' top --interval 1h --url '%s'; echo code $?; stty -a", cmdtest.Binary(), cmdtest.FileURL(t))
	keys, screen := onTerminal(t, nil, "/bin/sh", "-c", script)
	screen.Contains("0 held, ")
	typeKeys(t, keys, "xq")
	screen.Contains("code 0\r\n")
	screen.Contains(" echoke")
	if text := screen.Text(); !strings.Contains(text, " icanon ") || !strings.Contains(text, " echo ") || strings.Contains(text, "xq") {
		t.Errorf("%q", text)
	}
}

// Tables on a terminal are not wider than it.
func TestTerminalTableWidth(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	name := strings.Repeat("long", 40)
	cmdtest.Begin(t, mode("signals"), "run", "--url", url, name, "--", self).Stdout.Contains("ready")
	for _, command := range []string{"list", "top --once"} {
		_, screen := onTerminal(t, nil, "/bin/sh", "-c", fmt.Sprintf("stty cols 78; '%s' %s --url '%s'; echo code $?", cmdtest.Binary(), command, url))
		screen.Contains("code 0\r\n")
		for line := range strings.Lines(screen.Text()) {
			if line = strings.TrimRight(line, "\r\n"); len(line) > 78 || strings.Contains(line, name) {
				t.Errorf("%s: a line of %d characters: %q", command, len(line), line)
			}
		}
		if !strings.Contains(screen.Text(), "longl") || !strings.Contains(screen.Text(), "... ") {
			t.Errorf("%s: %q", command, screen.Text())
		}
	}
	if _, out, _ := cmdtest.Exec(t, nil, "list", "--url", url); !strings.Contains(out, name+" ") {
		t.Errorf("not on a terminal: %q", out)
	}
}

// The head of a table is bold on a terminal, unless the environment forbids it.
func TestTerminalBoldHead(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	cmdtest.Begin(t, mode("signals"), "run", "--url", url, "x", "--", self).Stdout.Contains("ready")
	for env, want := range map[string]string{
		"TERM=xterm NO_COLOR=": "\x1b[1mNAME ", "TERM=xterm NO_COLOR=1": "\nNAME ", "TERM=xterm NO_COLOR=false": "\nNAME ", "TERM=dumb NO_COLOR=": "\nNAME ",
	} {
		for _, command := range []string{"list", "top --once"} {
			_, screen := onTerminal(t, strings.Fields(env), "/bin/sh", "-c", fmt.Sprintf("echo; '%s' %s --url '%s'; echo code $?", cmdtest.Binary(), command, url))
			screen.Contains("code 0\r\n")
			if text := screen.Text(); !strings.Contains(text, want) || strings.Contains(text, "\x1b") != strings.Contains(want, "\x1b") {
				t.Errorf("%s %s: %q", env, command, text)
			}
		}
	}
	if _, out, _ := cmdtest.Exec(t, []string{"TERM=xterm", "NO_COLOR="}, "list", "--url", url); !strings.HasPrefix(out, "NAME ") {
		t.Errorf("not on a terminal: %q", out)
	}
}
