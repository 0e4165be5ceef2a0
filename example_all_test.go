package lock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/interlock-go/lock"
)

// A transfer needs both accounts. A transfer in the other direction names them in the other
// order, and no deadlock is possible.
func ExampleAll() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	both := lock.All(c.Mutex("accounts/7"), c.Mutex("accounts/3"))
	l, err := both.Lock(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(l.Name())
	for _, part := range l.Parts() { // each has a fencing token of its own
		_, fenced := part.Token()
		fmt.Println(part.Name(), fenced)
	}
	fmt.Println(l.Unlock(ctx))
	// Output:
	// accounts/3+accounts/7
	// accounts/3 true
	// accounts/7 true
	// <nil>
}
