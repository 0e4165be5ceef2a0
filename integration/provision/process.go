package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server binary run on this machine.
type process struct {
	binary  string
	args    []string
	env     []string
	dir     string // working directory, and where the log goes
	logName string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// startBinary runs the first of k's binaries on the PATH that has the right version.
func startBinary(ctx context.Context, k kind, o Options) (*Server, error) {
	path, err := findBinary(ctx, k)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "interlock-"+k.flavour+"-")
	if err != nil {
		return nil, fmt.Errorf("binary: %w", err)
	}
	port, err := reservePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &process{binary: path, args: append(k.args("127.0.0.1", port.port, dir, o), o.Args...), dir: dir, logName: dir + "/server.log"}
	p.env = k.env
	if o.Clock != nil {
		p.env = append(slices.Clip(p.env), o.Clock.env()...)
	}
	s, err := launch(ctx, k, o, p, port, "binary "+path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
	return s, nil
}

func findBinary(ctx context.Context, k kind) (string, error) {
	var tried []string
	for _, name := range k.binaries {
		path, err := exec.LookPath(name)
		if err != nil {
			tried = append(tried, name+" is not on the PATH")
			continue
		}
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		version := k.binaryVersion(string(out))
		switch {
		case err != nil || version == "":
			tried = append(tried, fmt.Sprintf("%s --version: %v, %q", path, err, out))
		case !k.serves(version):
			tried = append(tried, fmt.Sprintf("%s is version %s, want %s", path, version, k.major))
		default:
			return path, nil
		}
	}
	return "", fmt.Errorf("binary: %s", strings.Join(tried, "; "))
}

func (p *process) start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.logName, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.binary, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = dieWithParent()
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel ties the child's life to the thread that started it, so this thread waits for it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		_ = log.Close()
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.exited = cmd, exited
	return nil
}

// current returns the process last started, and a channel that is closed when it has ended.
func (p *process) current() (*os.Process, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil, nil
	}
	return p.cmd.Process, p.exited
}

func (p *process) running() bool {
	proc, exited := p.current()
	if proc == nil {
		return false
	}
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig os.Signal) error {
	proc, _ := p.current()
	if proc == nil || !p.running() {
		return errors.New("the server does not run")
	}
	return proc.Signal(sig)
}

func (p *process) stop(ctx context.Context) error {
	if !p.running() {
		return nil
	}
	proc, exited := p.current()
	if err := errors.Join(proc.Signal(syscall.SIGCONT), proc.Signal(syscall.SIGTERM)); err != nil && p.running() {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill(context.WithoutCancel(ctx)))
	}
}

func (p *process) kill(ctx context.Context) error {
	if !p.running() {
		return nil
	}
	proc, exited := p.current()
	if err := proc.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *process) pause(ctx context.Context) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	proc, _ := p.current()
	// The signal is delivered when the kernel gets round to it; a test wants a server that has stopped.
	return until(ctx, func(context.Context) error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", proc.Pid))
		if err != nil {
			return nil // no /proc here, or no such process: nothing to wait for
		}
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && !bytes.HasPrefix(stat[i:], []byte(") T")) {
			return errors.New("the process is not stopped yet")
		}
		return nil
	})
}

func (p *process) resume(context.Context) error { return p.signal(syscall.SIGCONT) }

func (p *process) remove(ctx context.Context) error {
	// A short grace lets a server close its files; nothing that it could still say is needed.
	grace, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := p.stop(grace); err != nil {
		return p.kill(ctx)
	}
	return nil
}

func (p *process) log() string {
	b, err := os.ReadFile(p.logName)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(b))
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return "\t" + strings.Join(lines[max(0, len(lines)-15):], "\n\t")
}
