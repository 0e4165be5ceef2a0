package fence_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/fence"
	"github.com/interlock-go/lock/memlock"
)

// A holder is stopped for longer than its lease. Its successor writes. When the first
// holder continues, the guard refuses its token.
func ExampleGuard() {
	ctx := context.Background()
	space := memlock.NewSpace()
	open := func(opts ...lock.Option) *lock.Client {
		c, _ := lock.New(space.Backend(), append(opts, lock.WithLogger(nil))...) // the loss below is on purpose
		return c
	}
	var (
		guard  fence.Guard
		ledger []string
	)
	write := func(l *lock.Lease, line string) error {
		token, _ := l.Token()
		return guard.Do(token, func() error {
			ledger = append(ledger, line)
			return nil
		})
	}

	one, two := open(lock.WithTTL(50*time.Millisecond), lock.WithoutRenewal()), open()
	defer one.Close(ctx)
	defer two.Close(ctx)
	stopped, _ := one.Mutex("ledger").Lock(ctx)
	fmt.Println("first:", write(stopped, "first"))
	// the first holder is stopped here; its lease expires and the lock is granted again
	successor, _ := two.Mutex("ledger").Lock(ctx)
	fmt.Println("second:", write(successor, "second"))
	// the first holder continues
	err := write(stopped, "first again")
	fmt.Println("stale:", errors.Is(err, fence.ErrStale))
	fmt.Println(ledger, successor.Unlock(ctx))
	// Output:
	// first: <nil>
	// second: <nil>
	// stale: true
	// [first second] <nil>
}

// Each key has its own greatest token.
func ExampleGuards() {
	guards := fence.Guards{Max: 10_000, Keep: time.Hour}
	write := func(order string, token uint64) error {
		return guards.Do(order, token, func() error { return nil }) // the write
	}
	fmt.Println(write("orders/42", 8))
	fmt.Println(write("orders/7", 3))
	fmt.Println(write("orders/42", 7))
	// Output:
	// <nil>
	// <nil>
	// fence: stale fencing token 7 for "orders/42": 8 has been seen
}
