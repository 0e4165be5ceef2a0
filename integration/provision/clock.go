package provision

import (
	"os/exec"
	"testing"
	"time"

	"github.com/interlock-go/lock/conformance/conformanceclock"
)

// ClockWorker returns the command of a worker of the conformance suite whose wall clock is wrong. self is the command of
// one whose clock is right.
func ClockWorker(t testing.TB, self func() *exec.Cmd) func(off time.Duration) *exec.Cmd {
	t.Helper()
	worker := conformanceclock.Worker(self)
	if worker == nil {
		t.Fatal("provision: a worker with a wrong clock needs Linux on amd64 or arm64")
	}
	return worker
}
