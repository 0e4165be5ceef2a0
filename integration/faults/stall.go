package faults

import (
	"time"

	"github.com/interlock-go/lock/integration/faults/workload"
)

// stall is a time in which the machine, this process or the service paused.
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

// slowReleases returns the releases that took more than most, as stalls: a service that is so slow may take a waiter
// that waits for its reply for a dead one.
func slowReleases(ops []workload.Op, most time.Duration) (all []stall) {
	for _, op := range ops {
		if op.Kind == workload.Released && op.Ret-op.Call > int64(most) {
			all = append(all, stall{op.Call, op.Ret})
		}
	}
	return all
}
