package memcachelock_test

import (
	"fmt"

	"github.com/interlock-go/lock/memcachelock"
)

// The keys of locks, for "get" of the protocol.
func ExampleKey() {
	fmt.Println(memcachelock.Key("lock", "orders/42"))
	fmt.Println(memcachelock.Key("shop", "commande no 42, été"))
	// Output:
	// lock:orders/42
	// shop:#445b2f4393479d6753486f023501cf7e6f4f25a5b826588234e5836dd4dc1f06
}
