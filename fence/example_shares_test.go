package fence_test

import (
	"errors"
	"fmt"

	"github.com/interlock-go/lock/fence"
)

// A writer that was stopped writes after readers have been granted the lock.
func ExampleRWGuard() {
	var guard fence.RWGuard
	catalog := "old"
	write := func(token uint64, s string) error {
		return guard.Write(token, func() error { catalog = s; return nil })
	}
	fmt.Println(write(1, "new"))
	err := guard.Read(2, func() error { fmt.Println(catalog); return nil })
	fmt.Println(err)
	fmt.Println(write(1, "newer"))
	// Output:
	// <nil>
	// new
	// <nil>
	// fence: stale fencing token 1: 2 has been seen
}

// Two workers hold different shards. One of them is stopped, and its shard is given away.
func ExampleSlots() {
	var shards fence.Slots
	write := func(slots []int, token uint64) error {
		return shards.Do(slots, token, func() error { return nil }) // the write
	}
	fmt.Println(write([]int{0}, 7), write([]int{1}, 8))
	fmt.Println(write([]int{0}, 9))
	err := write([]int{0}, 7)
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	fmt.Println(write([]int{1}, 8))
	// Output:
	// <nil> <nil>
	// <nil>
	// true fence: stale fencing token 7 for "slot 0": 9 has been seen
	// <nil>
}
