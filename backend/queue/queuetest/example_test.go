package queuetest_test

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// A key that is held is granted to the process that waits as soon as its holder releases it.
func ExampleReference() {
	var key queuetest.Reference
	request := func(owner string) queue.Attempt {
		return queue.Attempt{Request: backend.Request{Key: "job", Owner: owner, TTL: 10 * time.Second}, Mode: queue.Join}
	}
	key.Acquire(1*time.Second, "process a", request("one"))
	key.Acquire(2*time.Second, "process b", request("two"))
	_, events := key.End(3*time.Second, "process a", queue.End{Request: request("one").Request, Kind: queue.Release})
	for _, e := range events {
		fmt.Println(e.Process, e)
	}
	// Output: process b Granted(two, token 3000000, slots [], for 3s)
}
