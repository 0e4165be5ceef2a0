package trust

import (
	"math"
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
func suspended() time.Duration { return ahead(clockTime) }

// ahead compares the two clocks. What passes between their readings counts, too much rather than too little, so it reads
// them again if the thread did not run meanwhile.
func ahead(read func(clock uintptr) time.Duration) time.Duration {
	best, shortest := time.Duration(0), time.Duration(math.MaxInt64)
	for range 5 {
		before := read(clockMonotonic)
		boottime := read(clockBoottime)
		took := read(clockMonotonic) - before
		if took < shortest {
			best, shortest = boottime-before, took
		}
		if took < time.Millisecond {
			break
		}
	}
	return best
}

func clockTime(clock uintptr) time.Duration {
	var ts syscall.Timespec
	// It cannot fail: Linux has both clocks since 2.6.39.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0) //nolint:gosec // the argument of a system call
	return time.Duration(ts.Nano())
}
