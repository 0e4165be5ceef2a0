package synclock_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/synclock"
	_ "github.com/interlock-go/lock/memlock"
)

// A program that loses the lock while its code does not look at a context has to end.
func ExampleNew() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	var l sync.Locker = synclock.New(ctx, c.Mutex("queue"), func(err error) { log.Fatal(err) })
	l.Lock()
	fmt.Println("locked")
	l.Unlock()
	// Output: locked
}
