//go:build unix

package measure

import (
	"os"
	"syscall"
)

const canStop = true

func stopProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
