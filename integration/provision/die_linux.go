package provision

import "syscall"

// dieWithParent makes the kernel kill a server whose test binary is gone, however it went.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
