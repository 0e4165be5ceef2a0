package queue_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// The Service is one in memory. A driver has one of its own, which sends each operation to a server.
func ExampleNew() {
	ctx, server := context.Background(), queuetest.NewServer()
	process := func() *queue.Backend {
		service := server.Process()
		b := queue.New(service)
		service.Start(b) // from now on it reports events to b
		return b
	}
	one, two := process(), process()
	held, err := one.TryAcquire(ctx, backend.Request{Key: "job", Owner: strings.Repeat("1", 32), TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	waits := backend.Request{Key: "job", Owner: strings.Repeat("2", 32), TTL: 10 * time.Second}
	waits.OnWait = func(*backend.LockedError) {
		go func() { _ = held.Release(ctx) }()
	}
	next, err := two.Acquire(ctx, waits)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the next holder has a greater token:", next.Token() > held.Token())
	// Output: the next holder has a greater token: true
}
