package filelock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/filelock"
)

// Processes of one machine that open the same directory exclude each other.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	process := func() *lock.Client {
		b, err := filelock.New(dir)
		if err != nil {
			log.Fatal(err)
		}
		c, err := lock.New(b)
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	first, second := process(), process()
	defer first.Close(ctx)
	defer second.Close(ctx)

	lease, err := first.Mutex("backup").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = second.Mutex("backup").TryLock(ctx)
	fmt.Println("locked:", errors.Is(err, lock.ErrLocked))
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// locked: true
	// <nil>
}
