//go:build darwin || freebsd || dragonfly

package filelock

import "syscall"

func mountFlags(st *syscall.Statfs_t) uint64 { return uint64(st.Flags) }
