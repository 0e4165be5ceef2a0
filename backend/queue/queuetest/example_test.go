package queuetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// Two processes of a service in memory, with the waiting of package queue.
func ExampleServer() {
	ctx := context.Background()
	server := queuetest.NewServer()
	open := func() *queue.Backend {
		s := server.Process()
		b := queue.New(s)
		s.Start(b) // the Backend gets the events
		return b
	}
	first, second := open(), open()

	req := backend.Request{Key: "k", Owner: "00000000000000000000000000000001", TTL: 10 * time.Second}
	grant, err := first.TryAcquire(ctx, req)
	if err != nil {
		panic(err)
	}
	waits := make(chan struct{})
	acquired := make(chan error)
	go func() {
		req := backend.Request{Key: "k", Owner: "00000000000000000000000000000002", TTL: 10 * time.Second}
		req.OnWait = func(*backend.LockedError) { close(waits) }
		_, err := second.Acquire(ctx, req)
		acquired <- err
	}()
	<-waits
	fmt.Println("released:", grant.Release(ctx))
	fmt.Println("acquired:", <-acquired)
	// Output:
	// released: <nil>
	// acquired: <nil>
}

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
