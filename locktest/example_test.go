package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/locktest"
)

// ship is the program under test: it ships an order, unless another process does.
func ship(ctx context.Context, c *lock.Client, order string, send func(context.Context) error) error {
	return lock.Do(ctx, c.Mutex("orders/"+order), send, lock.WithWait(2*time.Second))
}

// The context of the work ends when its lock is lost.
func ExampleService_Lose() {
	service := locktest.New()
	defer service.Close()
	err := ship(context.Background(), service.Client(), "42", func(ctx context.Context) error {
		service.Lose("orders/42")
		<-ctx.Done() // the program stops its work here
		return context.Cause(ctx)
	})
	fmt.Println("lost:", errors.Is(err, lock.ErrLost))
	// Output: lost: true
}

// Another process has the lock.
func ExampleService_Hold() {
	service := locktest.New()
	defer service.Close()
	client := service.Client()
	release := service.Hold("orders/42")
	_, err := client.Mutex("orders/42").TryLock(context.Background())
	fmt.Println("held:", errors.Is(err, lock.ErrLocked))
	release()
	err = ship(context.Background(), client, "42", func(context.Context) error { return nil })
	fmt.Println("shipped:", err == nil)
	// Output:
	// held: true
	// shipped: true
}

// A program that opens its client by a URL has the service too.
func ExampleService_URL() {
	service := locktest.New()
	defer service.Close()
	client, err := lock.Open(context.Background(), service.URL()+"?ttl=10s")
	if err != nil {
		panic(err)
	}
	defer client.Close(context.Background())
	fmt.Println("shipped:", ship(context.Background(), client, "42", func(context.Context) error { return nil }) == nil)
	// Output: shipped: true
}

// The service does not answer for as long as the lease lasts.
func ExampleService_Outage() {
	service := locktest.New()
	defer service.Close()
	client := service.Client(lock.WithTTL(100 * time.Millisecond))
	err := ship(context.Background(), client, "42", func(ctx context.Context) error {
		service.Outage(true)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println("lost:", errors.Is(err, lock.ErrLost))
	// Output: lost: true
}
