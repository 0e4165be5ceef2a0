//go:build unix && !linux

package lockcmd

import "syscall"

// attributes puts the command into a process group of its own. Only Linux can kill it
// when this program is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adoptOrphans() {}

// descendants is known on Linux only. Elsewhere the process group must suffice.
func descendants() []int { return nil }
