package trust

import (
	"math"
	"sync/atomic"
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
// much CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, which Go uses. The kernel moves the wall clock
// by as much as CLOCK_BOOTTIME. So while the difference between the wall clock and the monotonic
// clock is the same, the last reading is right, and no system call is made.
func suspended(now time.Time) time.Duration {
	apart := now.Round(0).Sub(began.Round(0)) - now.Sub(began)
	return readings.at(apart, func() time.Duration { return ahead(clockTime) })
}

var (
	began    = time.Now()
	readings cache
)

// cache has the last reading.
type cache struct{ last atomic.Pointer[reading] }

// reading is what was read when the wall clock was ahead of the monotonic clock by apart, compared
// with the start of the process.
type reading struct{ apart, suspended time.Duration }

func (c *cache) at(apart time.Duration, read func() time.Duration) time.Duration {
	last := c.last.Load()
	if last == nil || (apart-last.apart).Abs() > time.Millisecond {
		last = &reading{apart, read()}
		c.last.Store(last)
	}
	return last.suspended
}

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
