package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
)

// A test of a program that runs as several processes gives each of them a backend in one space.
func ExampleSpace() {
	ctx := context.Background()
	space := memlock.NewSpace()
	process := func() *lock.Client {
		c, err := lock.New(space.Backend())
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	first, second := process(), process()
	defer first.Close(ctx)
	defer second.Close(ctx)

	lease, err := first.Mutex("report").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = second.Mutex("report").TryLock(ctx)
	fmt.Println("locked:", errors.Is(err, lock.ErrLocked))
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// locked: true
	// <nil>
}
