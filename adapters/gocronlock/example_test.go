package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/gocronlock"
	_ "github.com/interlock-go/lock/memlock"
)

// Each run of a job is made by one of the nodes that share a lock service.
func ExampleLocker() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	locker := gocronlock.NewLocker(c.Mutex, 100*time.Millisecond)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	task := locker.Task("report", func(context.Context) error {
		fmt.Println("the report is written")
		close(done)
		return nil
	})
	if _, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), task, gocron.WithName("report")); err != nil {
		fmt.Println(err)
		return
	}
	s.Start()
	<-done
	fmt.Println(s.Shutdown())
	// Output:
	// the report is written
	// <nil>
}

// At most two jobs run at a time, over all nodes. gocron calls Lock before each run.
func ExampleNewLocker_limit() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	permit := func(_ string, opts ...lock.MutexOption) lock.Mutex {
		return c.Semaphore("exports", 2, opts...)
	}
	locker := gocronlock.NewLocker(permit, 0)
	for _, job := range []string{"a", "b", "c"} {
		_, err := locker.Lock(ctx, job)
		fmt.Println(job, "is skipped:", errors.Is(err, lock.ErrLocked))
	}
	// Output:
	// a is skipped: false
	// b is skipped: false
	// c is skipped: true
}
