package conformanceclock_test

import (
	"fmt"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/conformance/conformanceclock"
)

// The test calls conformance.WorkerMain in its TestMain, for both workers.
func ExampleWorker() {
	h := conformance.Harness{Name: "toy", Worker: conformance.Self("toy://localhost:4000")}
	h.ClockWorker = conformanceclock.Worker(h.Worker)
	fmt.Println(h.ClockWorker != nil) // false where the clock of a process cannot be changed
	// Output: true
}
