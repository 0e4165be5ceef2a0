package provision

import (
	"os/exec"
	"testing"
	"time"
)

// buildClockWorker checks the clock of what it has built. make test runs this one
// first, since it compiles a whole program on a machine that has no build cache.
func TestClockWorker(t *testing.T) {
	worker := ClockWorker(t, func() *exec.Cmd { return exec.Command("self") })
	if cmd := worker(time.Hour); cmd.Args[0] == "self" {
		t.Errorf("the worker with a wrong clock is %q", cmd.Args)
	}
}
