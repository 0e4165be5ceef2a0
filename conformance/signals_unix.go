//go:build unix && !aix

package conformance

import "syscall"

var needSignals = need{"SIGSTOP", func(*T) (Status, string) { return "", "" }}

// stop stops the worker, and waits until it has stopped.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	_, err := syscall.Wait4(p.cmd.Process.Pid, nil, syscall.WUNTRACED, nil)
	return err
}

func (p *process) resume() {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.fatalf("worker: %v", err)
	}
}
