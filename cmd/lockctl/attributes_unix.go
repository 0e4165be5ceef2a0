//go:build unix && !linux

package main

import "syscall"

// attributes gives the command a process group. Only Linux can be asked to kill it
// when lockctl is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
