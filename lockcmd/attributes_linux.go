package lockcmd

import "syscall"

// attributes puts the command into a process group of its own, and makes the kernel
// kill it if this program dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
