//go:build unix

package lockcmd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endingSignals end a wait for the lock. A running command gets them.
var endingSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// otherSignals are forwarded only.
var otherSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

// jobSignals are caught only while a command runs.
var jobSignals = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

// killRounds bounds how often kill looks for descendants, 1 ms apart.
const killRounds = 100

// surviveBrokenPipes keeps a write to a pipe without a reader from ending this program. The
// signal keeps its default action in the command.
func surviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

func isContinue(s os.Signal) bool { return s == syscall.SIGCONT }

// process is a running command. It has a process group of its own: its children can be
// ended with it, and a signal of the terminal reaches it once, through this program.
type process struct {
	pid     int // also of its process group
	exited  chan exitStatus
	stopped chan syscall.Signal
	jobs    chan os.Signal
	tty     *terminal
}

// start starts a command with the stdin, stdout and stderr of this process.
func start(path string, argv, env []string, sigs *signals) (*process, error) {
	p := &process{exited: make(chan exitStatus, 1), stopped: make(chan syscall.Signal, 8), jobs: sigs.ch}
	cmd := &exec.Cmd{
		Path: path, Args: argv, Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: attributes(),
	}
	notify(p.jobs, jobSignals)
	// A signal that is caught has its default action in the command. The one before may have
	// left SIGTTOU ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	orphans.commandRuns(true)
	started := make(chan error)
	go func() {
		// The parent-death signal is sent when the thread ends that forked. So that
		// thread waits for the command, and is not unlocked.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			status := p.wait(cmd.Process.Pid)
			orphans.commandRuns(false)
			p.exited <- status
		}
	}()
	if err := <-started; err != nil {
		orphans.commandRuns(false)
		signal.Reset(jobSignals...)
		return nil, err
	}
	p.pid = cmd.Process.Pid
	p.tty = openTerminal()
	// A background process must be able to write to the terminal and to pass it on. Ignored
	// after the start, so that the command does not inherit it.
	signal.Ignore(syscall.SIGTTOU)
	return p, nil
}

// wait reports each stop of the command and returns its exit code. It also waits for the
// orphans that this process adopts meanwhile. os.Process reports no stops.
func (p *process) wait(pid int) exitStatus {
	for {
		var ws syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR), err == nil && ended != pid:
		case err != nil: // no other call waits for it, so this cannot happen
			return exitStatus(ExitFailed)
		case ws.Stopped():
			p.stopped <- ws.StopSignal()
		case ws.Signaled():
			return exitStatus(ExitSignal + int(ws.Signal()))
		case ws.Exited():
			return exitStatus(ws.ExitStatus())
		}
	}
}

// signal sends s to the process group, as a terminal does. The user-defined signals
// end a process that does not handle them, so only the command gets them.
func (p *process) signal(s os.Signal) {
	n, ok := s.(syscall.Signal)
	switch {
	case !ok:
	case n == syscall.SIGUSR1 || n == syscall.SIGUSR2:
		_ = syscall.Kill(p.pid, n)
	case n == syscall.SIGTSTP && p.tty != nil && !p.tty.shell:
		// no process could continue it
	default:
		p.group(n)
	}
}

// group sends s to the process group. An error means that all its processes ended.
func (p *process) group(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

func (p *process) resume() { p.group(syscall.SIGCONT) }

// terminate sends TERM to the process group and to the descendants that have left it.
func (p *process) terminate() {
	p.group(syscall.SIGTERM)
	for _, pid := range descendants() {
		if group, err := unix.Getpgid(pid); err == nil && group != p.pid {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}

// kill kills the process group and all descendants, also those that begin meanwhile.
func (p *process) kill() {
	p.group(syscall.SIGKILL)
	for range killRounds {
		alive := false
		for _, pid := range descendants() {
			alive = syscall.Kill(pid, syscall.SIGKILL) == nil || alive // else it belongs to another user
		}
		if !alive {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// drain waits for the descendants of a command that ended, and kills them at the deadline.
func (p *process) drain(deadline time.Time) {
	for time.Now().Before(deadline) {
		if errors.Is(syscall.Kill(-p.pid, 0), syscall.ESRCH) && len(descendants()) == 0 {
			return
		}
		time.Sleep(min(5*time.Millisecond, time.Until(deadline)))
	}
	p.kill()
}

// suspend handles a command that s stopped. It reports whether the command must be
// continued.
func (p *process) suspend(s syscall.Signal) (resume bool) {
	t := p.tty
	switch {
	case t == nil || s == syscall.SIGSTOP:
		return false // the sender of the signal continues it; until then the lock is renewed
	case s != syscall.SIGTSTP && t.foreground() == t.own:
		t.give(p.pid) // the command needs the terminal, and this process has it
		return true
	case t.shell:
		t.give(t.own)
		suspendSelf(p.jobs)
		if t.given && t.foreground() == t.own {
			t.give(p.pid)
		}
		return true
	}
	return s == syscall.SIGTSTP
}

// suspendSelf stops the own process group, so that the shell shows its prompt, and
// returns when it is continued. Go never removes its handler of TSTP, so this process
// stops itself with SIGSTOP.
func suspendSelf(jobs chan os.Signal) {
	signal.Reset(jobSignals...) // signals from now on are not for the command
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
	signal.Stop(continued)
	notify(jobs, jobSignals)
}

// releaseTerminal takes the terminal back after the command ended.
func (p *process) releaseTerminal() {
	if t := p.tty; t != nil {
		if t.given && t.foreground() == p.pid {
			t.give(t.own)
		}
		unix.Close(t.fd)
	}
}

// terminal is the controlling terminal.
type terminal struct {
	fd    int
	own   int  // process group of this program
	shell bool // a shell can continue this program
	given bool // the command was given the terminal
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil // there is no terminal
	}
	own := unix.Getpgrp()
	return &terminal{fd: fd, own: own, shell: hasShell(own)}
}

// hasShell reports whether an ancestor belongs to the same session and to another
// process group. Only such a process can continue this one, and only then does the
// kernel let a terminal stop a process.
func hasShell(own int) bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid := os.Getppid(); pid > 0; _, pid = stat(pid) {
		if s, err := unix.Getsid(pid); err != nil || s != session {
			return false
		}
		if g, err := unix.Getpgid(pid); err != nil || g != own {
			return err == nil
		}
	}
	return false
}

// stat returns the state and the parent of a process, zero if unknown.
func stat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	// "pid (name) state parent ...", and a name may contain anything
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(f[1])
	return f[0], parent
}

func (t *terminal) foreground() int {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return pgrp
}

func (t *terminal) give(pgrp int) {
	if unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgrp) == nil && pgrp != t.own {
		t.given = true
	}
}
