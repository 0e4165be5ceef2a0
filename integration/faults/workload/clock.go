package workload

import "time"

// zero is one instant on both clocks.
var zero = func() (z struct {
	local   time.Time
	machine int64
}) {
	least := int64(1) << 62
	for range 100 { // the try that was not interrupted between the two
		before := machineClock()
		now := time.Now()
		after := machineClock()
		if after-before < least {
			least, z.local, z.machine = after-before, now, before+(after-before)/2
		}
	}
	return z
}()

// Monotonic returns the instant of t in nanoseconds of the machine's monotonic
// clock. It is zero for the zero time.
func Monotonic(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return zero.machine + int64(t.Sub(zero.local))
}

// Time is the reverse of Monotonic.
func Time(at int64) time.Time { return zero.local.Add(time.Duration(at - zero.machine)) }

func now() int64 { return Monotonic(time.Now()) }
