//go:build unix

package main

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

// The signals that end a wait for the lock; a running command gets them.
var deadlySignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// Those that mean nothing to lockctl itself.
var plainSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

// Those that lockctl takes over only while a command runs.
var jobSignals = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

func isContinue(s os.Signal) bool { return s == syscall.SIGCONT }

// process is a running command. It has a process group of its own: so what it has
// started can be ended with it, and what the terminal sends to lockctl's group
// reaches it once, through lockctl.
type process struct {
	pid     int // and the id of its group
	exited  chan exitStatus
	stopped chan syscall.Signal
	jobs    chan os.Signal
	tty     *terminal
}

// start starts a command with lockctl's own stdin, stdout and stderr.
func start(path string, argv, env []string, sigs *signals) (*process, error) {
	p := &process{exited: make(chan exitStatus, 1), stopped: make(chan syscall.Signal, 8), jobs: sigs.ch}
	cmd := &exec.Cmd{
		Path: path, Args: argv, Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: attributes(),
	}
	notify(p.jobs, jobSignals)
	started := make(chan error)
	go func() {
		// The kernel's "parent" of a parent-death signal is the thread that forked: it
		// must live as long as the command, so it waits for it, and is not given back.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.wait(cmd.Process.Pid)
		}
	}()
	if err := <-started; err != nil {
		signal.Reset(jobSignals...)
		return nil, err
	}
	p.pid = cmd.Process.Pid
	p.tty = openTerminal()
	// Ignored only from here on, so that the command does not inherit it: lockctl
	// must be able to hand the terminal over while it is in the background itself.
	signal.Ignore(syscall.SIGTTOU)
	return p, nil
}

// wait reports each stop of the command and its end. os.Process cannot tell stops.
func (p *process) wait(pid int) {
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(pid, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // nobody else waits for it: it cannot happen
			p.exited <- exitStatus(codeFailed)
			return
		case ws.Stopped():
			p.stopped <- ws.StopSignal()
		case ws.Signaled():
			p.exited <- exitStatus(codeSignal + int(ws.Signal()))
			return
		case ws.Exited():
			p.exited <- exitStatus(ws.ExitStatus())
			return
		}
	}
}

// signal passes on what lockctl was sent, to the whole group as a terminal would;
// the user-defined ones, which end a process that does not expect them, to the
// command alone.
func (p *process) signal(s os.Signal) {
	n, ok := s.(syscall.Signal)
	switch {
	case !ok:
	case n == syscall.SIGUSR1 || n == syscall.SIGUSR2:
		_ = syscall.Kill(p.pid, n)
	case n == syscall.SIGTSTP && p.tty != nil && !p.tty.shell:
		// there is nobody who could continue it
	default:
		p.group(n)
	}
}

// group sends to the command and what it has started. An error means that nobody
// is left.
func (p *process) group(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

func (p *process) terminate() { p.group(syscall.SIGTERM) }
func (p *process) kill()      { p.group(syscall.SIGKILL) }
func (p *process) resume()    { p.group(syscall.SIGCONT) }

// drain waits, after the command's own end, for what it has started, and kills
// that at the deadline.
func (p *process) drain(deadline time.Time) {
	for time.Now().Before(deadline) {
		if errors.Is(syscall.Kill(-p.pid, 0), syscall.ESRCH) {
			return
		}
		time.Sleep(min(5*time.Millisecond, time.Until(deadline)))
	}
	p.kill()
}

// suspend deals with a command that was stopped by s, and reports whether it
// should go on.
func (p *process) suspend(s syscall.Signal) (goOn bool) {
	t := p.tty
	switch {
	case t == nil || s == syscall.SIGSTOP:
		return false // whoever stopped it continues it, and the lock is renewed until then
	case s != syscall.SIGTSTP && t.foreground() == t.own:
		t.give(p.pid) // it wants the terminal, and we have it
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

// suspendSelf stops lockctl's own group as its command was, so that the shell has
// its prompt back, and returns when it is continued. Go keeps its handler of TSTP
// for good, so lockctl itself takes the signal that has none.
func suspendSelf(jobs chan os.Signal) {
	signal.Reset(jobSignals...) // those that come now are not for the command
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
	signal.Stop(continued)
	notify(jobs, jobSignals)
}

// release takes the terminal back after the command's end.
func (p *process) release() {
	if t := p.tty; t != nil {
		if t.given && t.foreground() == p.pid {
			t.give(t.own)
		}
		unix.Close(t.fd)
	}
}

// terminal is the one that controls lockctl.
type terminal struct {
	fd    int
	own   int  // lockctl's process group
	shell bool // there is a shell that can continue lockctl
	given bool // the command has been given the terminal
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil // there is none
	}
	own := unix.Getpgrp()
	return &terminal{fd: fd, own: own, shell: hasShell(own)}
}

// hasShell tells whether a process outside our group, but of our session, is among
// those that started us: only then is there somebody to continue us if we stop,
// and only then does the kernel let a terminal stop a process.
func hasShell(own int) bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid := os.Getppid(); pid > 0; pid = parentOf(pid) {
		if s, err := unix.Getsid(pid); err != nil || s != session {
			return false
		}
		if g, err := unix.Getpgid(pid); err != nil || g != own {
			return err == nil
		}
	}
	return false
}

// parentOf returns the parent of a process, or 0 where that cannot be known.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// "pid (name) state parent ...", and a name may contain anything
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1])
	return parent
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
