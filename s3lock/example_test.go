package s3lock_test

import (
	"fmt"

	"github.com/interlock-go/lock/s3lock"
)

// The keys of locks, for "aws s3api get-object".
func ExampleKey() {
	fmt.Println(s3lock.Key("lock", "nightly-report"))
	fmt.Println(s3lock.Key("shop/locks", "orders/42"))
	// Output:
	// lock/nightly-report
	// shop/locks/orders!2F42
}
