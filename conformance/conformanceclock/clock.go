// Package conformanceclock runs a worker of the conformance suite with a wrong wall clock.
//
// A Go program reads the clock without the C library, so libfaketime does not change its clock. A program that imports
// this package changes it itself, when it is started by a command of [Worker]: time.Now shows another wall clock. The
// monotonic clock stays right, as it does when a machine's clock is set. Other programs are not affected.
package conformanceclock

import (
	"os/exec"
	"strconv"
	"time"
)

// variable has the seconds that a process adds to its wall clock.
const variable = "INTERLOCK_CONFORMANCE_CLOCK"

// Worker returns a ClockWorker of a conformance.Harness. self returns the command of a program that imports this package,
// as conformance.Self does. The clock is off by whole seconds. Worker returns nil where the clock cannot be changed: it
// can on Linux with amd64 and arm64.
func Worker(self func() *exec.Cmd) func(off time.Duration) *exec.Cmd {
	if !supported {
		return nil
	}
	return func(off time.Duration) *exec.Cmd {
		cmd := self()
		if cmd.Env == nil {
			cmd.Env = cmd.Environ()
		}
		cmd.Env = append(cmd.Env, variable+"="+strconv.Itoa(int(off/time.Second)))
		return cmd
	}
}
