package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/schedule"
)

// A report on each working day at half past three in Berlin, on one node.
func Example_cronExpression() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // the life of the program
	defer cancel()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	times, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 3 * * MON-FRI")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := c.Mutex("report", lock.WithTTL(2*time.Minute), lock.WithMinHold(time.Minute))
	err = schedule.Cron(ctx, m, times, func(ctx context.Context) error {
		return nil // the work; ctx ends if the lock is lost
	})
	fmt.Println(err)
	// Output: lock: cron "report": context deadline exceeded
}

// The time zone of a cron expression counts, also where its clocks change; an interval is refused, because each node
// would have its own times.
func TestCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2000, 3, 24, 12, 0, 0, 0, time.UTC))) // summer time begins on the 26th
		c, err := lock.New(memlock.New())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		times, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 3 * * *")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*24*time.Hour)
		defer cancel()
		runs := map[int]int{} // of an hour, UTC
		err = schedule.Cron(ctx, c.Mutex("k"), times, func(context.Context) error {
			now := time.Now().UTC()
			if runs[now.Hour()]++; now.Minute() != 30 || now.Second() != 0 {
				t.Errorf("ran at %v", now)
			}
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || runs[1] != 3 || runs[2] != 1 || len(runs) != 2 {
			t.Errorf("%v; runs by the hour %v, want one at 02:30 UTC and three at 01:30", err, runs)
		}
		hourly, err := cron.ParseStandard("@every 1h")
		if err != nil {
			t.Fatal(err)
		}
		if err := schedule.Cron(t.Context(), c.Mutex("k"), hourly, nil); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("@every 1h: %v", err)
		}
	})
}
