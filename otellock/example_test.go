package otellock_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/otellock"
)

func open(ctx context.Context) (*lock.Client, error) {
	o, err := otellock.New() // the global providers; or WithMeterProvider, WithTracerProvider
	if err != nil {
		return nil, err
	}
	c, err := lock.Open(ctx, "mem:", lock.WithObserver(o), lock.WithLogger(slog.Default()))
	return c, err
}

func Example() {
	ctx := context.Background()
	c, err := open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)
	err = lock.Do(ctx, c.Mutex("orders/42"), func(context.Context) error {
		fmt.Println("observed")
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: observed
}
