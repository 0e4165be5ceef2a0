package natslock_test

import (
	"fmt"

	"github.com/interlock-go/lock/natslock"
)

// The keys of locks in their bucket, for "nats kv get".
func ExampleKey() {
	fmt.Println(natslock.Key("orders/42"))
	fmt.Println(natslock.Key("no. 42, été"))
	// Output:
	// orders/42
	// no=2E=2042=2C=20=C3=A9t=C3=A9
}
