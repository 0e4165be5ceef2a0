package lockcmd_test

import (
	"fmt"

	"github.com/interlock-go/lock/lockcmd"
	_ "github.com/interlock-go/lock/memlock" // registers mem:
)

// A program with the commands of lockctl for the drivers that it imports.
func Example() {
	p := lockcmd.Program{Name: "shopctl", Short: "Locks of the shop"}
	fmt.Println(p.Check([]string{"inspect", "--url", "mem:", "orders/42"}))
	fmt.Println(p.Check([]string{"inspect", "--nosuch"}))
	// Output:
	// <nil>
	// unknown flag: --nosuch (see shopctl inspect --help)
}

// What a program prints of a URL.
func ExampleDisplayURL() {
	fmt.Println(lockcmd.DisplayURL("redis://app:topsecret@cache:6379/0?ttl=30s"))
	// Output: redis://cache:6379/0
}
