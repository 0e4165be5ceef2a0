package faults_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/faults"
	"github.com/interlock-go/lock/integration/provision"
)

var (
	seed   = flag.Uint64("faults.seed", 0, "seed of a run to repeat; 0: fixed ones, and a random one for the mixed faults")
	length = flag.Duration("faults.length", 2*time.Second, "length of a run, without what follows it")
	dir    = flag.String("faults.dir", filepath.Join(os.TempDir(), "interlock-faults"), "folder for logs and pictures of runs that failed")
)

func clockCommand(t testing.TB) func(time.Duration) *exec.Cmd {
	return provision.ClockWorker(t, faults.Self)
}

// atOnce is how many services are tested at the same time. On a machine with two processors, with the race detector, five
// may leave no idle time, if their longest faults fall together: then requests end by their timeouts, clients connect
// again and again, and no waiter is served for want of processors alone.
const atOnce = 3

// TestFaults makes one short run of each fault on each service. Runs mostly wait.
func TestFaults(t *testing.T) {
	provision.LeaveOut(t, "every fault on every backend")
	t.Parallel()
	turns := make(chan struct{}, atOnce)
	for _, sv := range services {
		t.Run(sv.name, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			t.Cleanup(func() { <-turns }) // its servers have ended then
			s := sv.start(t)
			s.Name = sv.name
			all := s.All()
			if sv.ownFaults {
				all = s.Faults
			}
			for i, f := range all {
				t.Run(f.Name, func(t *testing.T) {
					n := uint64(i + 1)
					switch {
					case *seed != 0:
						n = *seed
					case f.Name == "mixed":
						n = rand.Uint64N(1_000_000)
						t.Logf("the random seed is %d", n)
					}
					s.Run(t, f, n, *length).Report(t, "TestFaults", *dir)
				})
			}
		})
	}
}
