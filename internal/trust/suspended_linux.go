package trust

import (
	"syscall"
	"time"
	"unsafe"
)

// Clocks of clock_gettime.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// suspended returns for how long the machine has been suspended since it started: by how
// much CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, which Go uses. It reads both itself,
// since package time has a clock of its own in a synctest bubble.
func suspended() time.Duration {
	monotonic := clockTime(clockMonotonic) // first: what passes between the two readings counts
	return clockTime(clockBoottime) - monotonic
}

func clockTime(clock uintptr) time.Duration {
	var ts syscall.Timespec
	// It cannot fail: Linux has both clocks since 2.6.39.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0) //nolint:gosec // the argument of a system call
	return time.Duration(ts.Nano())
}
