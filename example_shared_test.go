package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/interlock-go/lock"
)

// Requests read a catalog at the same time; a refresh excludes them for as long as it writes,
// and then reads beside them what it wrote.
func ExampleRWMutex() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	rw := c.RWMutex("catalog")

	refresh, _ := rw.Lock(ctx)
	_, err = rw.TryRLock(ctx)
	fmt.Println("a reader beside the writer:", errors.Is(err, lock.ErrLocked))
	fmt.Println("downgrade:", refresh.Downgrade(ctx)) // nothing else writes in between
	reader, err := rw.RLock(ctx)
	fmt.Println("a reader beside the reader:", err)
	_, err = rw.TryLock(ctx)
	fmt.Println("a writer beside readers:", errors.Is(err, lock.ErrLocked))
	fmt.Println(reader.Unlock(ctx), refresh.Unlock(ctx))
	// Output:
	// a reader beside the writer: true
	// downgrade: <nil>
	// a reader beside the reader: <nil>
	// a writer beside readers: true
	// <nil> <nil>
}

// At most three exports run at a time, over all processes.
func ExampleSemaphore() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	exports := c.Semaphore("exports", 3)

	large, _ := exports.Acquire(ctx, 2)
	err = lock.Do(ctx, exports.Weighted(1), func(ctx context.Context) error {
		_, err := exports.TryAcquire(context.Background(), 1)
		fmt.Println("a fourth:", errors.Is(err, lock.ErrLocked))
		return ctx.Err() // not nil if the permit was lost
	})
	fmt.Println(err, large.Unlock(ctx))
	// Output:
	// a fourth: true
	// <nil> <nil>
}

// A worker of a fixed number of workers gets a number that no other worker has.
func ExampleLease_Slots() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	workers := c.Semaphore("workers", 16)

	first, _ := workers.Acquire(ctx, 1)
	second, _ := workers.Acquire(ctx, 1)
	fmt.Println(first.Slots(), second.Slots())
	fmt.Println(first.Unlock(ctx)) // or it was killed, and its lease expired
	third, _ := workers.Acquire(ctx, 1)
	fmt.Println(third.Slots())
	// Output:
	// [0] [1]
	// <nil>
	// [0]
}
