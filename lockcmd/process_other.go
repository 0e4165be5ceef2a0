//go:build !unix

package lockcmd

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

var (
	endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	otherSignals  []os.Signal
)

func surviveBrokenPipes() {} // there is no signal for it

func isContinue(os.Signal) bool { return false }

// process is a running command. Without process groups only the command itself can be
// ended, and without a warning.
type process struct {
	cmd     *exec.Cmd
	exited  chan exitStatus
	stopped chan syscall.Signal
}

func start(path string, argv, env []string, _ *signals) (*process, error) {
	p := &process{exited: make(chan exitStatus, 1)}
	p.cmd = &exec.Cmd{Path: path, Args: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result
		p.exited <- exitStatus(p.cmd.ProcessState.ExitCode())
	}()
	return p, nil
}

func (p *process) signal(os.Signal)            {} // the console signals the command too
func (p *process) terminate()                  {}
func (p *process) kill()                       { _ = p.cmd.Process.Kill() }
func (p *process) resume()                     {}
func (p *process) drain(time.Time)             {}
func (p *process) suspend(syscall.Signal) bool { return false }
func (p *process) releaseTerminal()            {}
