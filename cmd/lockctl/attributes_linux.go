package main

import "syscall"

// attributes gives the command a process group, and has the kernel kill it should
// lockctl die without a chance to do it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
