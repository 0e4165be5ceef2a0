package faults

import (
	"time"

	"github.com/interlock-go/lock/integration/faults/workload"
)

// stall is a pause of the machine or of this process.
type stall struct{ from, to int64 }

// lookForStalls begins to look for timers that are late by more than most. The function that
// it returns ends that and returns the stalls.
func lookForStalls(most time.Duration) func() []stall {
	const tick = 10 * time.Millisecond
	stop, found := make(chan struct{}), make(chan []stall, 1)
	go func() {
		var all []stall
		for {
			select {
			case <-stop:
				found <- all
				return
			default:
			}
			begun := time.Now()
			time.Sleep(tick) // what is measured
			if now := time.Now(); now.Sub(begun) > tick+most {
				all = append(all, stall{workload.Monotonic(begun), workload.Monotonic(now)})
			}
		}
	}()
	return func() []stall {
		close(stop)
		return <-found
	}
}
