//go:build !linux

package provision

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
