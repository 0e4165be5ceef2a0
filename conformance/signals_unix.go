//go:build unix

package conformance

import "syscall"

var needSignals = need{"SIGSTOP", func(*T) (Status, string) { return "", "" }}

func (p *process) stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

func (p *process) resume() {
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.fatalf("worker: %v", err)
	}
}
