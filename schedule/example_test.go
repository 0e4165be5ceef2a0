package schedule_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/schedule"
)

// A report each hour, on one node. Clocks may differ by less than a minute.
func ExampleEvery() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // the life of the program
	defer cancel()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	m := c.Mutex("report", lock.WithTTL(2*time.Minute), lock.WithMinHold(time.Minute))
	err := schedule.Every(ctx, m, time.Hour, func(ctx context.Context) error {
		return nil // the work; ctx ends if the lock is lost
	}, schedule.WithOnRun(func(r schedule.Run) { log.Println("ran", r.Tick, r.Took, r.Err) }))
	fmt.Println(err)
	// Output: lock: every "report": context deadline exceeded
}
