package faults_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/provision"
)

// TestMinute makes short runs of faults in random order on each service for 40 s. make test calls it; TestFaults makes
// a run of every fault.
func TestMinute(t *testing.T) {
	if provision.All() {
		t.Skip("TestFaults makes a run of every fault")
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1_000_000)
	}
	t.Logf("the seed of the order is %d", first)
	turns := make(chan struct{}, atOnce)
	for i, sv := range services {
		t.Run(sv.name, func(t *testing.T) {
			if sv.ownFaults {
				provision.LeaveOut(t, "faults of "+sv.name)
			}
			t.Parallel()
			turns <- struct{}{}
			t.Cleanup(func() { <-turns })
			s := sv.start(t)
			s.Name = sv.name
			dice := rand.New(rand.NewPCG(first, uint64(i)))
			all := s.All()
			dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for n, begun := 0, time.Now(); time.Since(begun) < 40*time.Second; n++ {
				f := all[n%len(all)]
				t.Run(f.Name, func(t *testing.T) {
					s.Run(t, f, dice.Uint64N(1_000_000), *length).Report(t, "TestFaults", *dir)
				})
			}
		})
	}
}
