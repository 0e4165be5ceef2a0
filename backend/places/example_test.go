package places_test

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// A driver embeds the Backend that New makes of its Service, and adds Capabilities.
func ExampleNew() {
	svc := placestest.NewServer().Client()
	b := places.New(svc, places.Config{
		SessionTTL:     func(ttl time.Duration) time.Duration { return ttl.Round(time.Second) },
		RequestTimeout: 5 * time.Second,
	})
	svc.Use(b) // the events of the service
	ctx := context.Background()
	g, err := b.Acquire(ctx, backend.Request{Key: "k", Owner: "0123456789abcdef0123456789abcdef", TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	fmt.Println("token", g.Token())
	fmt.Println(g.Release(ctx), b.Close(ctx))
	// Output:
	// token 1
	// <nil> <nil>
}
