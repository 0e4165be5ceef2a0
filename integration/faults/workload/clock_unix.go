//go:build unix

package workload

import "golang.org/x/sys/unix"

// machineClock reads the kernel's monotonic clock, which has the same zero in all processes.
func machineClock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
